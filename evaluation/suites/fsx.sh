#!/usr/bin/env bash
# The program fsx (crate fsx) on a plain directory and on mounts: random writes, truncations, holes,
# maps and copies of a file, every read compared; several files at a time, larger than the tier
# together. At the end the files on base are compared with what the mount said.
#
#   evaluation/suites/fsx.sh [--modes plain,through,back] [--files 24] [--operations 4000]
#                            [--length BYTES] [--jobs 4] [--binary PATH] [--work DIR]
set -euo pipefail

suite=fsx
everything=yes
policy=lru
files=24
operations=4000
length=8388608
jobs=4
option() {
    case $1 in
        --files) files=$2 ;;
        --operations) operations=$2 ;;
        --length) length=$2 ;;
        --jobs) jobs=$2 ;;
        *) return 1 ;;
    esac
}
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
options "$@"
need_crate fsx 0.3.2

config() { # number, length of the file, sizes of operations, weights...
    printf '%s\n' "flen = $2" '[opsize]' "$3" '[weights]' "${@:4}" > "$out/$1.toml"
}

# By turns: all operations; no maps, so that all data takes the way of reads and writes; small
# operations that share pages; whole pages; a short file that is cut and closed all the time.
write_configs() {
    local weights='read = 5
write = 5
truncate = 1
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 0.5
punch_hole = 1
sendfile = 1
posix_fadvise = 1
copy_file_range = 1
close_open = 1'
    local maps='invalidate = 1
mapread = 2
mapwrite = 2'
    config 0 "$length" 'max = 262144' "$weights" "$maps"
    config 1 "$length" 'max = 262144' "$weights"
    config 2 262144 'max = 3000' "$weights" "$maps"
    # fsx refuses aligned posix_fallocate.
    config 3 "$length" $'max = 65536\nalign = 8192' "$(grep -v fallocate <<< "$weights")"
    config 4 100000 'max = 30000' "$(grep -v -e truncate -e close_open <<< "$weights")" \
        $'truncate = 8\nclose_open = 5'
}

one() { # number
    local status=0
    timeout --kill-after=20 600 "$crate" -f "$out/$(($1 % 5)).toml" -N "$operations" -S "$1" \
        -P "$out" "$root/file-$1" > "$out/fsx-$1" 2>&1 || status=$?
    if ((status == 0)) && grep -q A-OK "$out/fsx-$1"; then
        record "seed $1" pass
    else
        record "seed $1" fail "exit $status $(grep -m1 -v '^\[' "$out/fsx-$1" | cut -c 1-120)"
    fi
}

run() {
    write_configs
    local job workers=()
    for ((job = 1; job <= jobs; job++)); do
        # The mount is a child as well: only these are waited for.
        (for ((number = job; number <= files; number += jobs)); do one "$number"; done) &
        workers+=($!)
    done
    attended=${workers[*]}
    wait "${workers[@]}" || true
    attended=
    (cd "$root" && timeout --kill-after=20 300 sha256sum file-*) > "$out/sums" || true
}
unmounted() {
    judge "(base is what the mount was)" compare
}
compare() {
    (($(find "$base" -type f | wc -l) == $(wc -l < "$out/sums"))) \
        && env -C "$base" timeout 300 sha256sum --quiet -c "$out/sums"
}

each_mode run
