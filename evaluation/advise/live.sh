#!/usr/bin/env bash
# Whole objects on flash against a tier, live: TPC-C by PostgreSQL over a base that is an emulated
# 7200-rpm disk, flash for a share of the database.
#
#   evaluation/advise/live.sh [RESULT.md]
#
# Needs root (or a user who may mount and run postgres), FUSE, PostgreSQL, python3, go-tpc (built
# with `go install` unless GO_TPC names a program), and target/release/thermocline (or
# THERMOCLINE=program). Parameters here and in lib.sh,
# each to be overridden by the environment.
#
# First the load is recorded on a mount without a slow disk, and `thermocline advise` says which
# objects belong on flash. Then, REPEATS times, every row in turn, each from a copy of the same
# files with an empty cache. Rows:
#
#   none        the disk alone
#   indexes     the advisor's naive plan: index files are moved to flash (links to files there)
#   opa         the files that access density chooses are moved to flash
#   POLICY      a tier of that policy, write-through; POLICY:back in write-back
#   opa+POLICY  the advised files are pinned in the tier, the policy has the rest; also with :back
#   ssd         everything on flash
#
# Flash, the database's log (in every row) and `ssd` are the machine's own disk.
set -euo pipefail

: "${SHARES:=23 36}"      # flash in per cent of the database
: "${PROFILED:=60}"       # seconds that are recorded for the advice
: "${WARM:=60}"           # seconds before measuring
: "${SECONDS_MEASURED:=40}"
: "${REPEATS:=3}"
: "${ROWS:=indexes opa tac tac:back value:back opa+tac:back}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
result=$(realpath -m "${1:-$here/../results/advise-live.md}")
# shellcheck source=lib.sh
source "$here/lib.sh"

advise() {
    echo "recording for $PROFILED s" >&2
    fresh
    mount --policy tac --cache "$work/cache" --size 2MiB --format --record "$work/trace.parquet"
    start "$work/mnt/data" "$buffers"
    run "$PROFILED" "$work/profiled"
    sql -c "COPY (SELECT 'data/' || pg_relation_filepath(oid), relname FROM pg_class
        WHERE pg_relation_filepath(oid) IS NOT NULL) TO STDOUT (FORMAT csv)" > "$work/names.csv"
    stop
    unmount
    for share in $SHARES; do
        echo $((bytes * share / 100 / 8192)) > "$work/slots.$share"
        "$thermocline" advise "$work/trace.parquet" --policies tac --size "$((bytes * share / 100 / 8192))p" \
            --keep-size --placements "$work/placements.$share.json" > "$work/advice.$share" 2> /dev/null
    done
}

measure() { # share, row, repeat
    local share=$1 row=$2 slots options=() mode=() policy plan
    slots=$((bytes * share / 100 / 8192))
    fresh
    [[ $row != *:back ]] || mode=(--write-back)
    policy=${row%:back}
    policy=${policy#opa+}
    case $row in
        none) options=(--policy none "${disk[@]}") ;;
        ssd) options=(--policy none) ;;
        indexes | opa)
            options=(--policy none "${disk[@]}")
            plan=$("$here/live.py" plan "$work" "$share" "$row")
            for file in $plan; do
                mv "$work/base/$file" "$work/flash/${file//\//-}"
                ln -s "$work/flash/${file//\//-}" "$work/base/$file"
            done
            ;;
        *)
            options=(--policy "$policy" --cache "$work/cache" --size "${slots}p" --format "${mode[@]}" "${disk[@]}")
            if [[ $row == opa+* ]]; then
                "$here/live.py" plan "$work" "$share" copied | python3 -c \
                    'import json, sys; print("[tier]\npin =", json.dumps(sys.stdin.read().split()))' > "$work/config.toml"
                options+=(--config "$work/config.toml")
            fi
            ;;
    esac
    mount "${options[@]}"
    start "$work/mnt/data" "$buffers"
    run "$WARM" "$work/warm"
    "$thermocline" status --json "$work/mnt" > "$work/before.json"
    run "$SECONDS_MEASURED" "$work/report"
    "$thermocline" status --json "$work/mnt" > "$work/after.json"
    stop
    unmount
    "$here/live.py" row "$work" "$share" "$row" "$3" | tee -a "$work/rows.jsonl"
}

load
advise
for repeat in $(seq "$REPEATS"); do
    measure 0 none "$repeat"
    measure 100 ssd "$repeat"
    for share in $SHARES; do
        for row in $ROWS; do measure "$share" "$row" "$repeat"; done
    done
done

settings="WAREHOUSES=$WAREHOUSES SHARES='$SHARES' MEMORY=$MEMORY CLIENTS=$CLIENTS PROFILED=$PROFILED WARM=$WARM \
SECONDS_MEASURED=$SECONDS_MEASURED REPEATS=$REPEATS FULL=$FULL ROWS='$ROWS'"
{
    cat << END
# Whole objects on flash against a tier, live

$(date -u +%Y-%m-%d). $("$thermocline" --version), PostgreSQL $version, Linux $(uname -r | cut -d- -f1), $(nproc)
cores. Base is a file system slowed down to an **emulated** 7200-rpm disk, $FULL times as large as the database.
Flash, the database's log (in every row) and \`ssd\` are the machine's own disk, which nothing slows down.

    $settings evaluation/advise/live.sh

TPC-C, $WAREHOUSES warehouses, $((bytes >> 20)) MiB, $CLIENTS clients, no think times, shared_buffers $buffers. Each row starts from a copy of the same files
and an empty cache: $WARM s of warming, $SECONDS_MEASURED s measured, $REPEATS repeats in turn: medians and ranges.

END
    "$here/live.py" table "$work"
} > "$result"
for share in $SHARES; do cp "$work/advice.$share" "${result%.md}-advice-$share.txt"; done
echo "written to $result"
