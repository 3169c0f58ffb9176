#!/usr/bin/env bash
# What a write with fsync costs over a mount, against a plain directory on the same disk: fio writes
# pages of 8 KiB at random places of one file and syncs after each, or after 32.
#
#   evaluation/fsync/run.sh [RESULT.md]
#
# Needs root (or a user who may mount), FUSE, fio, python3, and target/release/thermocline (or
# THERMOCLINE=program). Base, cache and the plain directory are on the same disk, DIRECTORY; it should
# be the flash device. No device is emulated. The three take turns, ROUNDS times.
set -euo pipefail

: "${ROUNDS:=5}"
: "${SECONDS_MEASURED:=4}"
: "${SIZE:=64M}"
: "${POOL:=16M}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
result=$(realpath -m "${1:-$here/../results/fsync.md}")
work=$(mktemp -d "$DIRECTORY/thermocline-fsync-XXXXXX")
mounted=()
finish() {
    for mnt in "${mounted[@]}"; do "$thermocline" umount "$mnt" > /dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT

mkdir -p "$work"/{plain,through,back}/{base,mnt}
mount_() { # name, options
    "$thermocline" mount "$work/$1/base" "$work/$1/mnt" --cache "$work/$1/cache" --size 256M \
        --policy lc --pool "$POOL" --page-size 8KiB --log "$work/$1/log" "${@:2}" > /dev/null
    mounted+=("$work/$1/mnt")
}
mount_ through
mount_ back --write-back

bench() { # directory, jobs, writes before a sync, seconds, out
    fio --name=t --filename="$1/16384" --rw=randwrite --bs=8k --size="$SIZE" --ioengine=psync \
        --numjobs="$2" --fsync="$3" --time_based --runtime="$4" --group_reporting \
        --randseed="$RANDOM" --output-format=json > "$5"
}
# Every page is written before, so that nothing is allocated while measuring.
for name in plain through back; do
    where=$work/$name/mnt
    fio --name=fill --filename="$where/16384" --rw=write --bs=8k --size="$SIZE" --end_fsync=1 > /dev/null
    bench "$where" 1 32 5 /dev/null
done
for jobs in 1 8; do
    for writes in 1 32; do
        for ((round = 0; round < ROUNDS; round++)); do
            for name in plain through back; do
                bench "$work/$name/mnt" "$jobs" "$writes" "$SECONDS_MEASURED" \
                    "$work/$name-$jobs-$writes-$round.json"
            done
        done
    done
done
python3 - "$work" "$ROUNDS" << 'END' > "$work/table"
import json, statistics, sys
work, rounds = sys.argv[1], int(sys.argv[2])
print("| jobs | writes a sync | | writes/s | median sync µs | p99 sync µs | sync, to plain | writes/s, to plain |")
print("|---:|---:|---|---:|---:|---:|---:|---:|")
def run(*name):
    job = json.load(open(f"{work}/{'-'.join(map(str, name))}.json"))["jobs"][0]
    lat = job["sync"]["lat_ns"]["percentile"]
    return job["write"]["iops"], lat["50.000000"] / 1000, lat["99.000000"] / 1000
for jobs in (1, 8):
    for writes in (1, 32):
        plain = [run("plain", jobs, writes, r) for r in range(rounds)]
        for name in ("plain", "through", "back"):
            ours = [run(name, jobs, writes, r) for r in range(rounds)]
            mid = [statistics.median(v) for v in zip(*ours)]
            ratio = lambda i: statistics.median(o[i] / p[i] for o, p in zip(ours, plain))
            label = {"plain": "plain directory", "through": "write-through", "back": "write-back"}[name]
            print(f"| {jobs} | {writes} | {label} | {mid[0]:,.0f} | {mid[1]:.0f} | {mid[2]:.0f} | {ratio(1):.2f}× | {ratio(0):.2f}× |")
END
cat "$work/table"
{
    cat << END
# Writes with fsync over a mount

$(date -u +%Y-%m-%d). $("$thermocline" --version), Linux $(uname -r | cut -d- -f1), $(nproc) cores, $(fio --version).
Command: \`ROUNDS=$ROUNDS SECONDS_MEASURED=$SECONDS_MEASURED SIZE=$SIZE POOL=$POOL evaluation/fsync/run.sh\`. Base, cache and the plain directory
are on the same disk, nothing is emulated; medians of $ROUNDS rounds that took turns, ratios of the rounds.

END
    cat "$work/table"
} > "$result"
