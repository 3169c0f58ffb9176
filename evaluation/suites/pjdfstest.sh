#!/usr/bin/env bash
# The crate pjdfstest (what POSIX says of names, modes, owners, times) on a plain directory and on
# mounts. Without root it leaves out what needs root.
#
#   evaluation/suites/pjdfstest.sh [--modes plain,through,back] [--binary PATH] [--work DIR]
set -euo pipefail

suite=pjdfstest
everything=yes
option() { return 1; }
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
options "$@"
need_crate pjdfstest 0.2.2
short=$(mktemp -d /tmp/tc-pjd-XXXXXX) # names of sockets have at most 107 bytes
chmod 755 "$short"
finish() {
    clean_up
    rm -rf "$short"
}
trap finish EXIT

run() {
    mkdir "$root/pjd"
    chmod 777 "$root/pjd"
    ln -sfn "$root/pjd" "$short/t"
    # The second file system is for what must not work from one to another.
    attend timeout --kill-after=20 600 "$crate" -c "$here/pjdfstest.toml" -p "$short/t" \
        -s /dev/shm > "$out/printed" 2>&1 || true
    python3 - "$out/printed" << 'PYTHON' >> "$result"
import re, sys
lines = open(sys.argv[1], errors="replace").read().splitlines() + [""]
for each, after in zip(lines, lines[1:]):
    if found := re.match(r"^(\S+::\S+)\s+(ok|FAILED|skipped|expected failure)\b", each):
        name, status = found.groups()
        kind = {"ok": "pass", "skipped": "skip"}.get(status, "fail")
        print(name, kind, "" if kind == "pass" else after.strip(), sep="\t")
PYTHON
}

each_mode run
