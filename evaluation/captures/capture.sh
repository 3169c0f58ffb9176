#!/usr/bin/env bash
# One capture: an unmodified PostgreSQL or MariaDB under TPC-C or TPC-H on a recorded mount, the
# database's own buffer a percentage of the database's size; 0: the smallest it works with.
#
#   evaluation/captures/capture.sh postgres|mariadb tpcc|tpch PERCENT [OUT.parquet]
#
# Needs root (or a user who may mount and run the server), FUSE, the server, Python 3 with venv,
# and target/release/thermocline (or THERMOCLINE=program). go-tpc is built with `go install`
# unless GO_TPC names a program; tpchgen-cli and pyarrow are installed into a virtual environment
# unless PYTHON_VENV names one that has them. Parameters below, each to be overridden by the
# environment. The servers listen on the loopback interface only.
set -euo pipefail

: "${WAREHOUSES:=4}"      # TPC-C: about 100 MB each
: "${SCALE:=0.2}"         # TPC-H: scale factor
: "${TERMINALS:=8}"       # TPC-C: sessions
: "${STREAMS:=2}"         # TPC-H: sessions, each with all queries
: "${WARM:=45}"           # seconds before the capture
: "${SECONDS_CAPTURED:=240}"
: "${PAGES:=0}"           # end the capture after that many pages; 0: at the end of the run
: "${EXACT:=}"            # not empty: keep nanoseconds
: "${COARSE:=}"           # not empty: keep milliseconds, and no latencies
: "${FULL:=}"             # also write the whole run, exact, with logs, to this file
: "${LOADED:=}"           # directory that keeps loaded databases for further captures
: "${QUERIES:=}"          # TPC-H: queries that are run; default: all that end within a minute
: "${GO_TPC_VERSION:=682637f4f995}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"

usage() { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
(($# == 3 || $# == 4)) || usage
database=$1 workload=$2 percent=$3
[[ $database == postgres || $database == mariadb ]] || usage
[[ $workload == tpcc || $workload == tpch ]] || usage
[[ $percent =~ ^[0-9]+$ ]] || usage
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(realpath -m "${4:-$here/$database-$workload-$percent.parquet}")
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")

work=$(mktemp -d "$DIRECTORY/thermocline-capture-XXXXXX")
chmod 755 "$work"
mkdir "$work/base" "$work/mnt" "$work/run"
owner=$(id -un)
as=()
if ((EUID == 0)); then
    owner=postgres
    [[ $database == mariadb ]] && owner=mysql
    as=(runuser -u "$owner" --)
fi
chown "$owner" "$work/base" "$work/run"
cd "$work"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

mounted=no
serving=no
finish() {
    if [[ $serving == yes ]]; then stop || true; fi
    if [[ $mounted == yes ]]; then "$thermocline" umount --lazy "$work/mnt" > /dev/null || true; fi
    cd /
    rm -rf "$work"
}
trap finish EXIT

# shellcheck source=postgres.sh
source "$here/$database.sh"   # server_version create prepare start stop sql load_table analyze bytes names

programs() {
    if [[ -n ${PYTHON_VENV:-} ]]; then
        venv=$PYTHON_VENV
    else
        venv=$work/venv
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet pyarrow==26.0.1 tpchgen-cli==4.0.0
    fi
    if [[ -z ${GO_TPC:-} ]]; then
        GOBIN=$work go install "github.com/pingcap/go-tpc/cmd/go-tpc@$GO_TPC_VERSION"
        GO_TPC=$work/go-tpc
    fi
}

tpc() { # workload, action, further options
    local driver=(-d mysql)
    [[ $database == postgres ]] && driver=(-d postgres --conn-params sslmode=disable)
    "$GO_TPC" "$1" "$2" "${driver[@]}" -U capture -D test -H 127.0.0.1 -P "$port" "${@:3}"
}

load() {
    create "$work/base/data"
    start "$work/base/data" 262144
    prepare
    if [[ $workload == tpcc ]]; then
        tpc tpcc prepare --warehouses "$WAREHOUSES" -T 4 --no-check > "$work/prepare.log"
    else
        "$venv/bin/tpchgen-cli" csv -s "$SCALE" --output-dir "$work/run/csv" > /dev/null
        chmod -R a+rX "$work/run/csv"
        sql < "$here/tpch.sql"
        for table in region nation part supplier partsupp customer orders lineitem; do
            load_table "$table" "$work/run/csv/$table.csv"
        done
        rm -r "$work/run/csv"
    fi
    analyze
    bytes > "$work/base/bytes"
    stop
}

# Statements of a running server, as they go on until `seconds` are over. Every line of run.log
# begins with microseconds since 1970.
run() { # seconds
    if [[ $workload == tpcc ]]; then
        tpc tpcc run --warehouses "$WAREHOUSES" -T "$TERMINALS" --time "${1}s" --ignore-error \
            --interval 1s
    else
        tpc tpch run -T "$STREAMS" --time "${1}s" --queries "${QUERIES:-$queries}" --ignore-error
    fi 2>&1 | while IFS= read -r line; do
        echo "${EPOCHREALTIME/./} $line"
    done > "$work/run.log" || { cat "$work/run.log" >&2; return 1; }
}

programs
kept=${LOADED:+$LOADED/$database-$workload}
if [[ -n $kept && -d $kept ]]; then
    cp -a --reflink=auto "$kept/." "$work/base/"
else
    echo "loading $workload"
    load
    if [[ -n $kept ]]; then cp -a --reflink=auto "$work/base" "$kept"; fi
fi
size=$(cat "$work/base/bytes")
buffer=$(((size * percent / 100 + 1048575) / 1048576 * 1024)) # KiB
((percent > 0)) || buffer=$smallest
echo "$database $workload: database $((size / 1048576)) MiB, buffer $buffer KiB ($percent %)"

# The tier is there so that requests are typed and go its way; of 2 MiB it serves next to none.
"$thermocline" mount "$work/base" "$work/mnt" --policy tac --cache "$work/cache" --size 2MiB \
    --format --page-size "$page_size" --record "$work/trace.parquet" --log "$work/mount.log"
mounted=yes
start "$work/mnt/data" "$buffer"
run "$WARM"
from=$(date +%s%N)
run "$SECONDS_CAPTURED"
to=$(date +%s%N)
names > "$work/names.csv"
version=$(server_version)
grep -v -e ' \[Current\]' "$work/run.log" | tail -30
stop
"$thermocline" umount "$work/mnt" > /dev/null
mounted=no
cat "$work/mount.log" | tail -3
python=$venv/bin/python
phase=(--names "$work/names.csv" --from "$from" --to "$to")
if [[ $workload == tpcc ]]; then phase+=(--transactions "$work/run.log"); fi
"$python" "$here/finish.py" "$work/trace.parquet" "$out" "${phase[@]}" --pages "$PAGES" \
    ${EXACT:+--exact} ${COARSE:+--coarse}
if [[ -n $FULL ]]; then
    "$python" "$here/finish.py" "$work/trace.parquet" "$FULL" "${phase[@]}" --with-bypassed --exact
fi
echo "$database $version, $buffer KiB of $((size / 1048576)) MiB, $(((to - from) / 1000000000)) s:" \
    "$out, $(stat -c %s "$out") bytes"
