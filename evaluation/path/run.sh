#!/usr/bin/env bash
# The way through the mount beside the hardware, and beside the least that FUSE costs, through
# /dev/fuse and over io_uring, in one run; and where the time of flash hits goes.
#
#   evaluation/path/run.sh [RESULT.md]
#
# Needs root, FUSE and Rust; io_uring where the kernel has it (scripts/with-ring.sh); perf for the
# profile, which is left out without it. DIRECTORY should be on the flash device; the machine should
# have nothing else to do. See crates/mount/benches/path.rs for what is measured.
set -euo pipefail

: "${DIRECTORY:=${TMPDIR:-/tmp}}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
result=${1:-evaluation/results/path.md}
built=$(cargo bench -p thermocline-mount --bench path --no-run 2>&1)
bench=$(sed -n 's/.*Executable benches\/path.rs (\(.*\))/\1/p' <<< "$built")
export THERMOCLINE_BENCH_DIR=$DIRECTORY
work=$(mktemp -d)
setting=/sys/module/fuse/parameters/enable_uring
before=$(cat "$setting" 2> /dev/null || true)
finish() {
    if [[ -n $before ]]; then echo "$before" > "$setting"; fi
    rm -rf "$work"
}
trap finish EXIT
if [[ -n $before ]]; then echo 0 > "$setting"; fi

profile() { # name, command...
    if type -P perf > /dev/null; then
        perf record -q -g -F 499 -o "$work/perf" -- "${@:2}" "8-KiB flash hit, 8" > /dev/null 2>&1 || return 0
        perf report -i "$work/perf" --no-children -g none --sort dso,symbol 2> /dev/null |
            sed -n 's/^ *\([0-9.]*%\) */\1 /p' | sed 's/[ -]*$//' | sed -n '1,14p' > "$work/profile-$1" || true
    fi
}
"$bench" | tee "$work/device"
profile device "$bench"
scripts/with-ring.sh "$bench" | tee "$work/ring"
profile ring scripts/with-ring.sh "$bench"
{
    echo "# The path beside the hardware"
    echo
    echo "\`evaluation/path/run.sh\`, $(date -I), Linux $(uname -r), $(nproc) CPUs. *Without*: direct reads of the cache"
    echo "file or of base's file, or the same kind of file without a mount. Rivals take turns: medians of times and of"
    echo "the turns' ratios, and the range of these."
    for name in device ring; do
        if [[ $name == device ]]; then echo -e "\n## Through /dev/fuse\n"; else echo -e "\n## Over io_uring\n"; fi
        if [[ ! -s $work/$name ]]; then echo "Not offered by this kernel."; continue; fi
        echo '```'
        grep -v '^files in' "$work/$name"
        echo '```'
        if [[ -s $work/profile-$name ]]; then
            echo -e "\nProfile of flash hits by 8 threads (client, mount and kernel together):\n"
            echo '```'
            cat "$work/profile-$name"
            echo '```'
        fi
    done
} > "$result"
echo "$result"
