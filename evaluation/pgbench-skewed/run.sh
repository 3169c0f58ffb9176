#!/usr/bin/env bash
# Skewed point reads of PostgreSQL over a mount whose base is an emulated 7200-rpm disk:
# base only, LRU, TAC, and everything on flash. One run, one table.
#
#   evaluation/pgbench-skewed/run.sh [RESULT.md]
#
# Needs root (or a user who may mount and run postgres), FUSE, PostgreSQL, sqlite3, and
# target/release/thermocline (or THERMOCLINE=program). Parameters below, each to be overridden by
# the environment. Every configuration starts from the same files, an empty cache and the same
# random seeds.
set -euo pipefail

: "${SCALE:=15}"          # pgbench scale: 100,000 rows, about 15 MB each
: "${SHARE:=4}"           # database size over flash size
: "${SHARED_BUFFERS:=8MB}"
: "${CLIENTS:=8}"
: "${WARM:=75}"           # seconds before measuring, LRU and TAC
: "${WARM_SHORT:=15}"     # the same for base only and all-SSD, which have nothing to warm
: "${SECONDS_MEASURED:=45}"
: "${SKEW:=1.01}"         # exponent of the Zipf distribution
: "${WORKLOADS:=scattered clustered}"
: "${CONFIGURATIONS:=base-only lru tac all-ssd}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=${THERMOCLINE:-$here/../../target/release/thermocline}
result=${1:-$here/../results/mount-pgbench.md}
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
rows=$((SCALE * 100000))
extents=$((rows / 2048))

work=$(mktemp -d "$DIRECTORY/thermocline-eval-XXXXXX")
chmod 755 "$work"
mkdir "$work/base" "$work/mnt" "$work/socket"
owner=$(id -un)
as=()
if ((EUID == 0)); then
    owner=postgres
    as=(runuser -u postgres --)
fi
chown "$owner" "$work/base" "$work/socket"
cd "$work"

mounted=no
serving=no
finish() {
    if [[ $serving == yes ]]; then stop_postgres || true; fi
    if [[ $mounted == yes ]]; then "$thermocline" umount --lazy "$work/mnt" > /dev/null || true; fi
    rm -rf "$work"
}
trap finish EXIT

start_postgres() { # data directory
    local settings=(listen_addresses= "shared_buffers=$SHARED_BUFFERS" effective_io_concurrency=0
        maintenance_io_concurrency=0 autovacuum=off checkpoint_timeout=1h bgwriter_lru_maxpages=0)
    if ! "${as[@]}" "$bin/pg_ctl" -D "$1" -w -t 120 -l "$work/socket/log" \
        -o "-k $work/socket ${settings[*]/#/-c }" start > "$work/start.log"; then
        cat "$work/socket/log" >&2
        return 1
    fi
    data=$1
    serving=yes
}
stop_postgres() {
    "${as[@]}" "$bin/pg_ctl" -D "$data" -w -m fast stop > /dev/null
    serving=no
}
client() { # program, arguments
    local program=$1
    shift
    "${as[@]}" env PGHOST="$work/socket" "$bin/$program" "$@"
}
sql() { client psql -X -A -t -q -d postgres -c "$1"; }

# pgbench's script WORKLOAD for SECONDS with SEED; its report.
bench() { # workload, seconds, seed, further options
    client pgbench --no-vacuum --file="$work/socket/$1.sql" --define=rows="$rows" \
        --define=extents="$extents" --define=skew="$SKEW" --client="$CLIENTS" --jobs=2 \
        --protocol=prepared --time="$2" --random-seed="$3" "${@:4}" postgres 2>&1
}

# A value of a status snapshot, 0 when it is not there.
value() { # file, JSON path
    sqlite3 :memory: "SELECT coalesce(json_extract(readfile('$1'), '\$.$2'), 0)"
}
# How much a value grew while measuring.
grown() { # JSON path
    sqlite3 :memory: "SELECT coalesce(json_extract(readfile('$work/after.json'), '\$.$1'), 0)
        - coalesce(json_extract(readfile('$work/before.json'), '\$.$1'), 0)"
}
percent() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f %%", (b > 0 ? 100 * a / b : 0) }'; }

echo "filling the database: scale $SCALE"
"${as[@]}" "$bin/initdb" -D "$work/base/data" --no-locale --encoding=UTF8 -A trust -k > /dev/null
start_postgres "$work/base/data"
client pgbench --initialize --quiet --scale="$SCALE" postgres 2> /dev/null
sql "VACUUM (FREEZE, ANALYZE)"
sql CHECKPOINT
bytes=$(sql "SELECT pg_table_size('pgbench_accounts') + pg_indexes_size('pgbench_accounts')")
version=$(sql "SHOW server_version")
stop_postgres
for script in scattered clustered; do cp "$here/$script.sql" "$work/socket/"; done
chmod -R a+rX "$work/socket"
flash=$((bytes / SHARE / 1048576))

summary=()
details=()
measure() { # workload, configuration
    local workload=$1 configuration=$2 options=() warm=$WARM report
    case $configuration in
        base-only) options=(--policy none --emulate-base hdd); warm=$WARM_SHORT ;;
        all-ssd) options=(--policy none); warm=$WARM_SHORT ;;
        *) options=(--policy "$configuration" --emulate-base hdd
            --cache "$work/cache" --size "${flash}MiB" --format) ;;
    esac
    rm -f "$work"/cache "$work"/socket/latency.*
    "$thermocline" mount "$work/base" "$work/mnt" "${options[@]}" --log "$work/mount.log"
    mounted=yes
    start_postgres "$work/mnt/data"
    bench "$workload" "$warm" 1 > /dev/null
    "$thermocline" status --json "$work/mnt" > "$work/before.json"
    report=$(cd "$work/socket" && bench "$workload" "$SECONDS_MEASURED" 2 --log \
        --log-prefix="$work/socket/latency")
    "$thermocline" status --json "$work/mnt" > "$work/after.json"
    "$thermocline" status --once "$work/mnt" > "$work/status.txt"
    stop_postgres
    "$thermocline" umount "$work/mnt" > /dev/null
    mounted=no
    tell "$workload" "$configuration" "$report"
}

tell() { # workload, configuration, pgbench's report
    local tps mean p95 pool buffer flash_hits base reads span
    tps=$(awk '/^tps = / { printf "%.0f", $3 }' <<< "$3")
    mean=$(awk '/^latency average = / { printf "%.2f", $4 }' <<< "$3")
    cat "$work"/socket/latency.* | awk '{ print $3 }' | sort -n > "$work/latencies"
    p95=$(awk '{ a[NR] = $1 } END { printf "%.2f", a[int((NR - 1) * 0.95) + 1] / 1000 }' \
        "$work/latencies")
    pool=$(grown stats.page_reads.pool)
    buffer=$(grown stats.page_reads.buffer)
    flash_hits=$(grown stats.page_reads.flash)
    base=$(grown stats.page_reads.base)
    # A mount without a tier passes all reads by.
    base=$((base + $(grown stats.bypassed_reads)))
    reads=$((pool + buffer + flash_hits + base))
    span=$(grown stats.uptime_s)
    summary+=("| $workload | $2 | $tps | $mean | $p95 | $(percent "$((pool + buffer + flash_hits))" \
"$reads") | $(percent "$(grown "devices[0].busy_s")" "$span") | $(percent \
"$(grown "devices[1].busy_s")" "$span") | $(value "$work/after.json" stats.tier.resident) | $(value \
"$work/after.json" stats.tier.admissions) | $(grown stats.tier.admissions) | $(value \
"$work/after.json" stats.tier.flash_writes) |")
    echo "${summary[-1]}"
    details+=("### $workload, $2" '' '```text' "$(grep -v '^  data/' "$work/status.txt" | sed "s|$work|WORK|g")" '```' '')
}

for workload in $WORKLOADS; do
    for configuration in $CONFIGURATIONS; do measure "$workload" "$configuration"; done
done

settings="SCALE=$SCALE SHARE=$SHARE SHARED_BUFFERS=$SHARED_BUFFERS CLIENTS=$CLIENTS WARM=$WARM \
WARM_SHORT=$WARM_SHORT SECONDS_MEASURED=$SECONDS_MEASURED SKEW=$SKEW"
{
    cat << END
# pgbench over a mount: skewed point reads, emulated 7200-rpm base

$(date -u +%Y-%m-%d). $("$thermocline" --version), PostgreSQL $version, Linux $(uname -r | cut -d- -f1), $(nproc)
cores. The base is a file system slowed down to an **emulated** hard disk; flash and the all-SSD
row are the machine's own disk, read directly.

Command: \`$settings evaluation/pgbench-skewed/run.sh\`

pgbench_accounts with its index is $((bytes / 1048576)) MiB ($rows rows), flash $flash MiB,
PostgreSQL's buffers $SHARED_BUFFERS. $CLIENTS clients; caches start empty, $WARM s of warming
(base-only and all-ssd: $WARM_SHORT s), then $SECONDS_MEASURED s measured; the same seeds everywhere.

END
    echo '| workload | tier | transactions/s | mean ms | p95 ms | read hits | base busy | flash busy | pages on flash | admitted, whole run | admitted, measured | flash writes, whole run |'
    echo '|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|'
    printf '%s\n' "${summary[@]}"
    printf '\n## Status of each mount at the end (warming included)\n\n'
    printf '%s\n' "${details[@]}"
} > "$result"
echo "written to $result"
