#!/usr/bin/env bash
# Many files read from end to end at once, by fio with direct requests of 128 KiB, and beside them
# one reader of random pages that are all on flash. A plain directory and a mount take turns.
#
#   evaluation/path/scans.sh
#
# Needs FUSE, fio, python3, and target/release/thermocline (or THERMOCLINE=program; with several,
# separated by spaces, these take turns as well). TRANSPORT=device or auto; with auto run it under
# scripts/with-ring.sh to have io_uring.
#
# "bytes of base" is what base was asked for, for each byte that was scanned: more than 1.0 is read
# twice. A mount starts empty in each round, but for the pages of the random reader.
set -euo pipefail

: "${TRANSPORT:=auto}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"
: "${ROUNDS:=3}"
: "${SCANS:=1 8 24 48}"
: "${FILE_MIB:=32}"
: "${SECONDS_MEASURED:=4}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -ra programs <<< "${THERMOCLINE:-$here/../../target/release/thermocline}"
work=$(mktemp -d "$DIRECTORY/thermocline-scans-XXXXXX")
mounted=
finish() {
    if [[ -n $mounted ]]; then "$mounted" umount "$work/mnt" > /dev/null || true; fi
    rm -rf "$work"
}
trap finish EXIT
mkdir -p "$work"/{base/base/5,mnt}
echo 15 > "$work/base/PG_VERSION"
most=$(printf '%s\n' $SCANS | sort -n | tail -1)
for ((file = 0; file < most; file++)); do
    dd if=/dev/urandom of="$work/base/base/5/$((17000 + file))" bs=1M count="$FILE_MIB" status=none
done
dd if=/dev/urandom of="$work/base/base/5/16400" bs=1M count=32 status=none
sync

run() { # directory, scans, result
    {
        printf '[global]\ndirect=1\nioengine=psync\ntime_based\nruntime=%s\n' "$SECONDS_MEASURED"
        printf '[hot]\nfilename=%s/base/5/16400\nrw=randread\nbs=8k\n' "$1"
        for ((file = 0; file < $2; file++)); do
            printf '[scan]\nfilename=%s/base/5/%s\nrw=read\nbs=128k\n' "$1" "$((17000 + file))"
        done
    } > "$work/jobs"
    fio --output-format=json --output="$3" "$work/jobs"
}

base_bytes() {
    "$mounted" status "$work/mnt" --json | python3 -c '
import json, sys
devices = json.load(sys.stdin)["devices"]
print(sum(one["reads"]["bytes"] for one in devices if one["role"] == "base"))'
}

mount_run() { # program, scans, result
    rm -f "$work/cache"
    "$1" mount "$work/base" "$work/mnt" --cache "$work/cache" --size 96M --page-size 8KiB \
        --transport "$TRANSPORT" --log "$work/log" > /dev/null
    mounted=$1
    # Its pages come to flash, and are all there when nothing is written to it any more.
    for _ in 1 2 3; do
        dd if="$work/mnt/base/5/16400" of=/dev/null bs=8k iflag=direct status=none
        sleep 1
    done
    local before after
    before=$(base_bytes)
    run "$work/mnt" "$2" "$3"
    after=$(base_bytes)
    echo $((after - before)) > "$3.base"
    "$1" umount "$work/mnt" > /dev/null
    mounted=
}

for scans in $SCANS; do
    for ((round = 0; round < ROUNDS; round++)); do
        echo "$scans scans, round $((round + 1))" >&2
        run "$work/base" "$scans" "$work/$scans.plain.$round"
        for ((at = 0; at < ${#programs[@]}; at++)); do
            mount_run "${programs[at]}" "$scans" "$work/$scans.mount$at.$round"
        done
    done
done
if grep -q "over io_uring" "$work/log"; then echo "transport: io_uring"; else echo "transport: /dev/fuse"; fi

python3 - "$work" "$ROUNDS" "$SCANS" "${programs[@]}" << 'END'
import json, pathlib, statistics, sys

work, rounds, scans, programs = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(), sys.argv[4:]


def read(path):
    """MiB/s of the scans, and the random reader's reads a second, p50 and p99 in ms."""
    text = path.read_text()
    jobs = json.loads(text[text.index("{"):])["jobs"]
    seconds = max(job["read"]["runtime"] for job in jobs) / 1000
    scanned = sum(job["read"]["io_bytes"] for job in jobs if job["jobname"] == "scan")
    hot = next(job["read"] for job in jobs if job["jobname"] == "hot")
    late = hot["clat_ns"]["percentile"]
    base = pathlib.Path(f"{path}.base")
    of_base = int(base.read_text()) / scanned if base.exists() else 1.0
    return (
        scanned / seconds / 2**20, hot["iops"],
        late["50.000000"] / 1e6, late["99.000000"] / 1e6, of_base,
    )


def shown(values, digits):
    values = sorted(values)
    ends = f"{values[0]:,.{digits}f}–{values[-1]:,.{digits}f}"
    return f"{statistics.median(values):,.{digits}f} ({ends})"


print("| scans | | scans together, MiB/s | random reads of flash, 1/s | their p50, ms | p99, ms | bytes of base |")
print("|---:|---|---:|---:|---:|---:|---:|")
names = ["mount"] if len(programs) == 1 else [f"mount, {pathlib.Path(one).name}" for one in programs]
rivals = [("plain", "plain directory, direct"), *((f"mount{at}", name) for at, name in enumerate(names))]
for many in scans:
    for rival, name in rivals:
        each = [read(pathlib.Path(work) / f"{many}.{rival}.{number}") for number in range(rounds)]
        rates, hot, middle, late, base = zip(*each)
        print(f"| {many} | {name} | {shown(rates, 0)} | {shown(hot, 0)} | {shown(middle, 2)} "
              f"| {shown(late, 1)} | {shown(base, 2)} |")
END
