#!/usr/bin/env bash
# Does advice on a running mount hold, live? PostgreSQL over a base that is an emulated 7200-rpm disk
# and a tier of SHARE per cent: `thermocline advise MOUNTPOINT` is asked while the load goes on, the
# command of its first line is carried out, and the same load goes on.
#
#   evaluation/advise/follow.sh [RESULT.md]
#
# Needs what live.sh needs, and pgbench. Parameters here and in lib.sh, each to be overridden by the
# environment. Each repeat starts from a copy of the same files and an empty cache.
set -euo pipefail

: "${WORKLOADS:=tpcc pgbench}"
: "${SHARE:=10}"          # the tier in per cent of the database
: "${ASKED:=150}"         # seconds that advise records, and over which *before* and *after* are measured
: "${WARM:=60}"           # seconds before that, and twice as long after the change
: "${REPEATS:=3}"
: "${SCALE:=13}"          # pgbench: 100,000 rows each, about 15 MB
: "${SKEW:=1.01}"         # pgbench: exponent of the Zipf distribution
: "${UPDATES:=3}"         # pgbench: updates in ten transactions

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
result=$(realpath -m "${1:-$here/../results/advise-follow.md}")
# shellcheck source=lib.sh
source "$here/lib.sh"
cp "$here"/../joint/{read,update}.sql "$work/run/"
chmod -R a+rX "$work/run"

pgbench() { "${as[@]}" "$bin/pgbench" -h "$work/run" -p "$port" -U bench "$@" test; }
work_for() { # seconds, report
    if [[ $workload == tpcc ]]; then
        run "$1" "$2"
    else
        (cd "$work/run" && pgbench --no-vacuum --file=read.sql@$((10 - UPDATES)) --file=update.sql@"$UPDATES" \
            --define=rows=$((SCALE * 100000)) --define=skew="$SKEW" --client="$CLIENTS" --jobs=2 \
            --protocol=prepared --time="$1") > "$2" 2>&1
    fi
}
status() { "$thermocline" status --json "$work/mnt" > "$work/$1.json"; }

follow() { # repeat
    fresh
    mount --policy tac --cache "$work/cache" --size "$((bytes * SHARE / 100 / 8192))p" --format "${disk[@]}"
    start "$work/mnt/data" "$buffers"
    work_for "$WARM" "$work/warm"
    status before.0
    "$thermocline" advise "$work/mnt" --for "${ASKED}s" --base hdd --clients "$CLIENTS" --json \
        > "$work/advice.json" 2> "$work/advise.log" &
    local asked=$!
    work_for "$((ASKED + 5))" "$work/before"
    status before.1
    wait "$asked" || { cat "$work/advise.log" >&2; return 1; }
    "$here/follow.py" command "$work" > "$work/command"
    bash -c "$(sed "s|^thermocline |$thermocline |" "$work/command")" > "$work/followed"
    work_for "$((2 * WARM))" "$work/warm"
    status after.0
    work_for "$ASKED" "$work/after"
    status after.1
    stop
    unmount
    "$here/follow.py" row "$work" "$workload" "$1" | tee -a "$work/rows"
}

for workload in $WORKLOADS; do
    load "$workload"
    for repeat in $(seq "$REPEATS"); do follow "$repeat"; done
done

settings="WORKLOADS='$WORKLOADS' SHARE=$SHARE ASKED=$ASKED WARM=$WARM REPEATS=$REPEATS SCALE=$SCALE SKEW=$SKEW \
UPDATES=$UPDATES WAREHOUSES=$WAREHOUSES MEMORY=$MEMORY CLIENTS=$CLIENTS FULL=$FULL"
{
    cat << END
# Advice on a running mount, followed

$(date -u +%Y-%m-%d). $("$thermocline" --version), PostgreSQL $version, Linux $(uname -r | cut -d- -f1), $(nproc)
cores. Base is a file system slowed down to an **emulated** 7200-rpm disk, $FULL times as large as the database;
flash and the database's log are the machine's own disk.

    $settings evaluation/advise/follow.sh

The tier is $SHARE % of the database, policy \`tac\`, write-through. After $WARM s, \`advise MOUNTPOINT --for ${ASKED}s\` is asked;
its first line is carried out; after $((2 * WARM)) s more, $ASKED s are measured. *Said* is I/O time saved, of one client
after another; *observed* is base's busy time a transaction saved, and *faster* what became of the transactions per second.

| workload | repeat | first line | said | observed | within | transactions/s before | after | faster |
|---|---:|---|---:|---:|---|---:|---:|---:|
END
    cat "$work/rows"
} > "$result"
echo "written to $result"
