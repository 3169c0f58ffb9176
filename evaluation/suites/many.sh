#!/usr/bin/env bash
# Many files and many clients: fio writes and reads 100,000 files with 64 processes and verifies what
# it reads, on a plain directory and on mounts. Five times as many files as the process may have open.
#
#   evaluation/suites/many.sh [--modes plain,through,back] [--clients 64] [--files 100032]
#                             [--open NUMBER] [--binary PATH] [--work DIR]
#
# --open: the limit on open files of the mount, and of fio; else the machine's own. With fewer than a
# mount of so many busy files needs, it is seen to answer "too many open files" (results/suites.md).
# At the end the files on base are compared with what the mount said.
set -euo pipefail

suite=many
everything=yes
clients=64
files=100032
open=
option() {
    case $1 in
        --clients) clients=$2 ;;
        --files) files=$2 ;;
        --open) open=$2 ;;
        *) return 1 ;;
    esac
}
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
options "$@"
need fio fio
[[ -z $open ]] || ulimit -n "$open"

pass() { # name, options of fio...
    judge "$1" timeout --kill-after=20 1800 fio --name=many --directory="$root" \
        --numjobs="$clients" --nrfiles=$((files / clients)) --filesize=16k \
        --size=$((files / clients * 16))k --bs=8k --openfiles=16 --file_service_type=random \
        --ioengine=psync --fallocate=none --group_reporting --verify=crc32c --verify_fatal=1 --verify_state_save=0 "${@:2}"
}

run() {
    pass write --rw=write --end_fsync=1
    pass "read and verify" --rw=read
    judge "(all files are there)" test "$(find "$root" -type f | wc -l)" -eq "$files"
    (cd "$root" && find . -type f -name '*.7' -print0 | sort -z | timeout 600 xargs -0 sha256sum) \
        > "$out/sums" || true
    [[ -n ${serving-} ]] || return 0
    remark descriptors "$(find "/proc/$serving/fd" -mindepth 1 | wc -l)"
    remark memory "$(grep VmHWM "/proc/$serving/status" | tr -s '\t ' ' ')"
    # Nobody asks for anything: once what was written is on base, 5 seconds cost less than 5
    # hundredths of CPU.
    judge "(an idle mount uses no CPU)" idle
}
ticks() { awk '{ print $14 + $15 }' "/proc/$serving/stat"; }
idle() {
    local before
    for _ in {1..24}; do
        before=$(ticks)
        sleep 5
        echo "$(($(ticks) - before)) ticks"
        if (($(ticks) - before < 5)); then return 0; fi
    done
    return 1
}
unmounted() {
    judge "(base is what the mount was)" compare
}
compare() {
    [[ -s $out/sums ]] && env -C "$base" timeout 600 sha256sum --quiet -c "$out/sums"
}

each_mode run
