#!/usr/bin/env bash
# PostgreSQL's own regression suite once, on a mount in write-back with a small cache, and if a test
# fails there, on a plain directory. Exit 1 when a test failed on the mount that passes on the plain
# directory.
#
#   scripts/suite-postgres.sh [PROGRAM]
#
# PROGRAM is by default the build with debug assertions, target/debug/thermocline, which is brought
# up to date first. The tests come from Debian's source package (not from this repository) and are
# kept in target/suites. All suites: evaluation/suites.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
program=${1-}
if [[ -z $program ]]; then
    program=$target/debug/thermocline
    cargo build --quiet --locked -p thermocline-cli
fi
# Not below target: the server's user must reach it.
work=$(mktemp -d "${TMPDIR:-/tmp}/thermocline-suite-XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
chmod 755 "$work"
kept=$target/suites/source
if [[ -d $kept ]]; then cp -a "$kept" "$work/source"; fi
suite() {
    evaluation/suites/postgres.sh --parts regress --modes "$1" --binary "$program" --work "$work"
}
status=0
# The second verdict is about both.
if ! suite back; then suite plain || status=$?; fi
if [[ -d $work/source ]] && ! cmp -s <(ls "$kept" 2> /dev/null) <(ls "$work/source"); then
    rm -rf "$kept"
    mkdir -p "${kept%/*}"
    cp -a "$work/source" "$kept"
fi
# What the server, the tester and the mount printed.
if ((status)); then
    rm -rf "$target/suites/failed"
    mkdir -p "$target/suites/failed"
    for mode in plain back; do
        cp -r "$work/postgres.$mode/out" "$target/suites/failed/$mode" 2> /dev/null || true
    done
    cp "$work/postgres.back/log" "$target/suites/failed/" 2> /dev/null || true
    echo "see $target/suites/failed" >&2
fi
exit "$status"
