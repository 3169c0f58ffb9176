#!/usr/bin/env bash
# fio with --verify on a plain directory and on mounts: each I/O engine, with and without O_DIRECT,
# random and sequential writes of mixed sizes, syncs, two jobs, verified while writing and after.
# At the end each file is verified once more: on the mount, and on base when nothing is mounted.
#
#   evaluation/suites/fio.sh [--modes plain,through,back] [--megabytes 48] [--engines psync,...]
#                            [--binary PATH] [--work DIR]
set -euo pipefail

suite=fio
everything=yes
policy=lru
megabytes=48
engines=psync,pvsync2,libaio,io_uring,mmap
option() {
    case $1 in
        --megabytes) megabytes=$2 ;;
        --engines) engines=$2 ;;
        *) return 1 ;;
    esac
}
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
options "$@"
need fio fio

# Name and options of each pattern.
patterns=(
    "random --rw=randwrite --bsrange=512-64k --bs_unaligned --fsync=64"
    "pages --rw=randwrite --bs=8k --fdatasync=32 --verify_backlog=64 --verify_backlog_batch=16"
    "mixed --rw=randrw --bs=4k --rwmixread=50 --fsync=128"
    "sequential --rw=write --bs=128k --end_fsync=1"
    "synced --rw=randwrite --bs=8k --sync=dsync --io_size=4m"
    "overwrite --rw=randwrite --bs=16k --norandommap --verify_backlog=32 --io_size=${megabytes}m"
)

arguments() { # engine, direct, directory, name, options
    printf '%s\n' --name="$4" --directory="$3" --ioengine="$1" --direct="$2" --numjobs=2 \
        --size="$((megabytes / 2))m" --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randrepeat=1 --randseed=7 \
        --group_reporting --fallocate=none --end_fsync=1 "${@:5}"
    # Two writes of a block under way at once may end in either order: fio takes turns with them.
    if [[ $1 == libaio || $1 == io_uring ]]; then
        printf '%s\n' --iodepth=8 --serialize_overlap=1
    fi
}

run() {
    local engine direct pattern name list=()
    kept=()
    for engine in ${engines//,/ }; do
        for direct in 0 1; do
            if [[ $engine == mmap && $direct == 1 ]]; then continue; fi
            for pattern in "${patterns[@]}"; do
                read -r -a list <<< "$pattern"
                name=$engine-$direct-${list[0]}
                local each given=()
                for each in "${list[@]:1}"; do
                    # O_DIRECT asks for whole sectors, maps for whole pages.
                    [[ $engine != mmap ]] || each=${each/bsrange=512-/bsrange=4k-}
                    [[ $each == --bs_unaligned && $direct$engine != 0[pli]* ]] || given+=("$each")
                done
                mkdir "$root/$name"
                local line
                mapfile -t line < <(arguments "$engine" "$direct" "$root/$name" job "${given[@]}")
                judge "$name" timeout --kill-after=20 300 fio "${line[@]}" --do_verify=1
                # Every block once, so what was written is known: verified again below.
                if [[ $name == *-pages || $name == *-sequential ]]; then
                    mapfile -t line < <(arguments psync 0 "$root/$name" job "${given[@]}")
                    judge "$name, again" timeout --kill-after=20 300 fio "${line[@]}" --verify_only
                    kept+=("$name|${given[*]}")
                else
                    rm -rf "${root:?}/$name"
                fi
            done
        done
    done
}
unmounted() {
    local each name options line
    for each in "${kept[@]}"; do
        name=${each%%|*}
        read -r -a options <<< "${each#*|}"
        mapfile -t line < <(arguments psync 0 "$base/$name" job "${options[@]}")
        judge "$name, on base" timeout --kill-after=20 300 fio "${line[@]}" --verify_only
    done
}

each_mode run
