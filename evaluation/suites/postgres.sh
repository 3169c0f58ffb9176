#!/usr/bin/env bash
# PostgreSQL's own tests on a plain directory and on mounts: the data directory is on the mount.
#
#   evaluation/suites/postgres.sh [--modes plain,through,back] [--parts regress,isolation,contrib]
#                                 [--schedule FILE] [--binary PATH] [--work DIR]
#
# The tests are those of Debian's source package; pg_regress and the isolation tester come with its
# package of clients. The server is of the same version: the installed one, or where the archive has
# no sources of that, the one that belongs to the sources. It is our own, as user postgres, on a
# socket in the scratch. Exit 1 when a test fails on a mount that passes on the plain directory.
set -euo pipefail

suite=postgres
page=8KiB
parts=regress,isolation,contrib
schedule=
option() {
    case $1 in
        --parts) parts=$2 ;;
        --schedule) schedule=$(realpath "$2") ;;
        *) return 1 ;;
    esac
}
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
options "$@"

need cc build-essential
debian_postgres
source=$sources
bin=$server_home/bin
pgxs=$server_home/lib/pgxs/src/test
become postgres
sockets=$(mktemp -d /tmp/tc-pg-XXXXXX) # short: names of sockets have at most 107 bytes
port=5432
finish() {
    clean_up
    rm -rf "$sockets"
}
trap finish EXIT

# Libraries that the tests load, in one directory: theirs and the server's.
libraries=$work/libraries-$version
if [[ ! -e $libraries/regress.so ]]; then
    mkdir -p "$libraries"
    for library in "$server_home"/lib/*.so; do ln -sf "$library" "$libraries"; done
    cc -shared -fPIC -O1 -I"$headers" -o "$libraries/regress.so" "$source/src/test/regress/regress.c"
fi
((EUID)) || chown postgres: "$sockets"

start_server() {
    ((EUID)) || chown postgres: "$base" "$out"
    "${as[@]}" "$bin/initdb" -k --auth=trust -U postgres --no-locale -E UTF8 -D "$root/data" \
        > "$out/initdb" 2>&1 || { record "(initdb)" fail; return 1; }
    # Few buffers, so that pages move between the server and the mount. Scans that meet would
    # return rows in another order.
    cat >> "$root/data/postgresql.conf" << CONF
listen_addresses = ''
unix_socket_directories = '$sockets'
port = $port
shared_buffers = 8MB
synchronize_seqscans = off
max_prepared_transactions = 10
max_connections = 60
# What test_decoding asks for.
wal_level = logical
max_replication_slots = 4
logical_decoding_work_mem = 64kB
max_wal_size = 128MB
checkpoint_timeout = 30s
CONF
    # dblink and postgres_fdw connect to the server itself.
    "${as[@]}" env PGHOST="$sockets" "$bin/postgres" -D "$root/data" > "$out/server" 2>&1 &
    server=$!
    local i
    for ((i = 0; i < 300; i++)); do
        if "$bin/pg_isready" -q -h "$sockets" -p "$port"; then return 0; fi
        kill -0 "$server" 2> /dev/null || break
        sleep 0.1
    done
    record "(server)" fail "did not start: $(tail -1 "$out/server")"
    return 1
}

# regress SECONDS NAME TESTER INPUT ARGUMENT...: one run, recorded test by test.
regress() {
    local seconds=$1 name=$2 tester=$3 input=$4 status=0
    shift 4
    mkdir -p "$out/$name"
    ((EUID)) || chown postgres "$out/$name"
    # In the directory of the tests: some read files by relative names.
    attend "${as[@]}" env -C "$input" timeout --kill-after=20 "$seconds" "$tester" \
        --bindir="$bin" --inputdir="$input" --outputdir="$out/$name" --dlpath="$libraries" \
        --host="$sockets" --port="$port" --user=postgres "$@" > "$out/$name/printed" 2>&1 \
        || status=$?
    # 1: some tests failed, which are recorded below. Others did not run.
    if ((status > 1)); then record "($name came to its end)" fail "exit $status"; fi
    local prefix=
    [[ $name != contrib-* ]] || prefix=${name#contrib-}/
    python3 - "$out/$name/printed" "$prefix" << 'PYTHON' >> "$result"
import re, sys
line = re.compile(r"^(?:test | {5})(\S+)\s+\.\.\. (ok|FAILED|failed \(ignored\))(.*)")
for each in open(sys.argv[1], errors="replace"):
    if found := line.match(each):
        name, status, rest = found.groups()
        died = "the session died" if "exit" in rest or "test process" in each else ""
        print(sys.argv[2] + name, "pass" if status == "ok" else "fail", died, sep="\t")
PYTHON
}

# Modules whose tests can run on a server that is already there, and those tests.
contrib_tests() {
    python3 - "$source/contrib" << 'PYTHON'
import pathlib, re, sys
# They need SELinux, settings of a server of their own, or a language of another package.
leave = r"sepgsql|basic_archive|auto_explain|pg_stat_statements|.*_plperl|.*_plpython"
for make in sorted(pathlib.Path(sys.argv[1]).glob("*/Makefile")):
    if re.fullmatch(leave, make.parent.name):
        continue
    text = make.read_text().replace("\\\n", " ")
    for key in ("REGRESS", "ISOLATION"):
        tests = " ".join(re.findall(rf"^{key} *\+?= *(.*)$", text, re.M))
        load = re.findall(rf"^{key}_OPTS.*(--load-extension=\S+)", text, re.M)
        if tests and "$(" not in tests:
            print(make.parent.name, key, *load, tests)
PYTHON
}

run() {
    start_server || return 0
    if [[ $parts == *regress* ]]; then
        collect regress
        regress 1500 regress "$pgxs/regress/pg_regress" "$source/src/test/regress" \
            --max-connections=10 \
            --schedule="${schedule:-$source/src/test/regress/parallel_schedule}"
    fi
    if [[ $parts == *isolation* ]]; then
        collect isolation
        regress 1500 isolation "$pgxs/isolation/pg_isolation_regress" "$source/src/test/isolation" \
            --schedule="$source/src/test/isolation/isolation_schedule"
    fi
    if [[ $parts == *contrib* ]]; then
        collect contrib
        local module kind tests
        while read -r module kind tests; do
            local tester=$pgxs/regress/pg_regress name=contrib-$module
            [[ $kind == REGRESS ]] || tester=$pgxs/isolation/pg_isolation_regress name+=-isolation
            # shellcheck disable=SC2086
            regress 300 "$name" "$tester" "$source/contrib/$module" \
                --dbname=contrib_regression $tests < /dev/null
        done < <(contrib_tests)
    fi
    # What the server itself thinks of its files: on the mount while it runs, and of every page's
    # checksum once it has ended.
    judge "(pg_amcheck)" timeout --kill-after=20 600 "$bin/pg_amcheck" --all --install-missing \
        -h "$sockets" -p "$port" -U postgres
    if grep -q PANIC "$out/server"; then record "(no PANIC)" fail; else record "(no PANIC)" pass; fi
    stop_server
    judge "(pg_checksums)" checksums "$root/data"
}
unmounted() {
    [[ ! -e $base/data/PG_VERSION ]] \
        || judge "(pg_checksums of base)" checksums "$base/data"
}
checksums() { timeout --kill-after=20 300 "$bin/pg_checksums" --check -D "$1"; }

each_mode run
