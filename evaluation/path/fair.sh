#!/usr/bin/env bash
# CPU time of an idle mount, and how evenly 16 clients are served: random direct reads of 8 KiB by fio,
# all from flash, and the same with four of the clients reading what only base has.
#
#   evaluation/path/fair.sh
#
# Needs root, FUSE, fio, python3, and target/release/thermocline (or THERMOCLINE=program).
# TRANSPORT=device or auto; with auto run it under scripts/with-ring.sh to have io_uring.
set -euo pipefail

: "${TRANSPORT:=auto}"
: "${DIRECTORY:=${TMPDIR:-/tmp}}"
: "${IDLE:=10}"
: "${SECONDS_MEASURED:=8}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
thermocline=$(realpath "${THERMOCLINE:-$here/../../target/release/thermocline}")
work=$(mktemp -d "$DIRECTORY/thermocline-fair-XXXXXX")
finish() {
    "$thermocline" umount "$work/mnt" > /dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir -p "$work"/{base/base/5,mnt}
echo 15 > "$work/base/PG_VERSION"
dd if=/dev/urandom of="$work/base/base/5/16400" bs=1M count=256 status=none
dd if=/dev/urandom of="$work/base/base/5/16500" bs=1M count=1024 status=none
sync
# The cache has room for the first file alone.
"$thermocline" mount "$work/base" "$work/mnt" --cache "$work/cache" --size 320M --page-size 8KiB \
    --policy lru --transport "$TRANSPORT" --log "$work/log" > /dev/null
for _ in 1 2 3; do
    dd if="$work/mnt/base/5/16400" of=/dev/null bs=8k iflag=direct status=none
    sleep 1
done
if grep -q "over io_uring" "$work/log"; then echo "transport: io_uring"; else echo "transport: /dev/fuse"; fi

pid=$("$thermocline" status "$work/mnt" --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["mount"]["pid"])')
ticks() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; }
before=$(ticks)
sleep "$IDLE"
after=$(ticks)
echo "idle: $(((after - before) * 1000 / $(getconf CLK_TCK))) ms of CPU time in $IDLE s"

clients() { # name, jobs of the flash file, jobs of the base file
    local options=(--rw=randread --bs=8k --direct=1 --ioengine=psync --time_based "--runtime=$SECONDS_MEASURED")
    fio --output-format=json "${options[@]}" --name=flash --filename="$work/mnt/base/5/16400" --numjobs="$2" \
        ${3:+--name=base --filename="$work/mnt/base/5/16500" --numjobs="$3" "${options[@]}"} > "$work/fio.json"
    python3 - "$work/fio.json" "$1" << 'END'
import json, statistics, sys
path, name = sys.argv[1:]
jobs = json.load(open(path))['jobs']
for kind in ('flash', 'base'):
    rates = [job['read']['iops'] for job in jobs if job['jobname'] == kind]
    if rates:
        late = max(job['read']['clat_ns']['percentile']['99.900000'] for job in jobs if job['jobname'] == kind)
        print(f'{name}: {len(rates)} clients of {kind}: {statistics.mean(rates):,.0f} reads/s each, '
              f'slowest {min(rates):,.0f}, fastest {max(rates):,.0f}; worst p99.9 {late / 1e6:.1f} ms')
END
}
clients "all on flash" 16
clients "beside base" 12 4
