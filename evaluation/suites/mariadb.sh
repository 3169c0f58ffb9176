#!/usr/bin/env bash
# MariaDB's own tests (mysql-test-run) on a plain directory and on mounts: data directories and logs
# are on the mount.
#
#   evaluation/suites/mariadb.sh [--modes plain,through,back] [--suites innodb,innodb_fts,...]
#                                [--minutes N] [--tests REGEX] [--binary PATH] [--work DIR]
#
# Each of the suites gets N minutes in each mode; what was not reached by then is not counted.
# Tests that Debian lists as unstable are left out. Exit 1 when a test fails on a mount that passes
# on the plain directory.
set -euo pipefail

suite=mariadb
page=16KiB
suites=innodb
minutes=60
tests=
option() {
    case $1 in
        --suites) suites=$2 ;;
        --minutes) minutes=$2 ;;
        --tests) tests=$2 ;;
        *) return 1 ;;
    esac
}
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
options "$@"

need mariadbd mariadb-server
tester=/usr/share/mysql/mysql-test
need "$tester/mtr" mariadb-test
become mysql
sockets=$(mktemp -d /tmp/tc-my-XXXXXX) # short: names of sockets have at most 107 bytes
((EUID)) || chown mysql: "$sockets"
finish() {
    clean_up
    rm -rf "$sockets"
}
trap finish EXIT

one_suite() { # name
    local printed=$out/$1 more=() var=$root/$1
    mkdir "$var" "$sockets/$1"
    ((EUID)) || chown mysql: "$var" "$sockets/$1"
    [[ ! -e $tester/unstable-tests.amd64 ]] || more+=(--skip-test-list=unstable-tests.amd64)
    [[ -z $tests ]] || more+=(--do-test="$tests")
    attend "${as[@]}" env -C "$tester" timeout --kill-after=60 $((minutes * 60 + 300)) \
        ./mtr --suite="$1" \
        --force --force --parallel=2 --max-test-fail=0 --testcase-timeout=6 \
        --suite-timeout="$minutes" --vardir="$var" --tmpdir="$sockets/$1" \
        "${more[@]}" > "$printed" 2>&1 || true
    python3 - "$printed" << 'PYTHON' >> "$result"
import re, sys
line = re.compile(r"^(\w+\.\S+)(?: '([^']*)')?\s+(?:w\d+ )?\[ ([\w-]+) \]\s*(.*)")
names = {"pass": "pass", "retry-pass": "fail", "fail": "fail", "retry-fail": "fail",
         "skipped": "skip", "disabled": "skip"}
text = open(sys.argv[1], errors="replace").read()
for found in map(line.match, text.splitlines()):
    if found:
        name, variant, status, rest = found.groups()
        name += f"[{variant}]" if variant else ""
        print(name, names.get(status, "fail"), "" if status == "pass" else rest, sep="\t")
if not any(map(line.match, text.splitlines())):
    print("(any test)", "fail", (text.splitlines() or ["nothing printed"])[-1], sep="\t")
if "Test suite timeout" in text:
    print("#cut\tits time was over")
PYTHON
    # The next suite needs the room, and the mount shall see the files go.
    [[ $mode == plain ]] || rm -rf "$var"
    rm -rf "${sockets:?}/$1"
}

run() {
    local each
    for each in ${suites//,/ }; do
        collect "$each"
        one_suite "$each"
    done
}

each_mode run
