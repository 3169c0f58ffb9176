#!/usr/bin/env bash
# Concurrent scans of files of which every EVERYth page is on flash, over a base that is an emulated
# 7200-rpm disk: seconds until all scans have ended, for each program, with nothing on flash, and
# without a tier (then nothing is read ahead either).
#
#   evaluation/path/holes.sh [PROGRAM...]
#
# Needs root (or a user who may mount), FUSE, python3, and target/release/thermocline or the programs
# named. Flash is the machine's own disk. Each scan is one process that reads its file once, REQUEST
# bytes at a time; the pages were put on flash by lru before, and stay: the scans run under priority,
# which leaves to base what is read in order.
set -euo pipefail

: "${STREAMS:=2 4}"
: "${MIB:=64}"            # of all files together
: "${EVERY:=8}"            # every so manieth page is on flash; or, negative, all but those
: "${EMULATE:=hdd}"       # none: base is the machine's own disk
: "${REQUEST:=131072}"
: "${REPEATS:=5}"
: "${FULL:=2}"            # the emulated disk's capacity over the size of the files
: "${DIRECTORY:=${TMPDIR:-/tmp}}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=("$@")
((${#programs[@]})) || programs=("$here/../../target/release/thermocline")
work=$(mktemp -d "$DIRECTORY/thermocline-holes-XXXXXX")
mounted=
finish() {
    if [[ -n $mounted ]]; then "$mounted" umount "$work/mnt" > /dev/null || true; fi
    rm -rf "$work"
}
trap finish EXIT

cat > "$work/scan.py" << 'END'
import os, random, sys, time
from concurrent.futures import ThreadPoolExecutor

what, size, *files = sys.argv[1:]
PAGE = 8192

def warm(path, every):
    every_page = range(os.path.getsize(path) // PAGE)
    pages = [page for page in every_page if (page % abs(every) == 3) == (every > 0)]
    random.Random(1).shuffle(pages)
    file = os.open(path, os.O_RDONLY)
    for page in pages:
        assert len(os.pread(file, PAGE, page * PAGE)) == PAGE
    os.close(file)

def scan(path, request):
    file = os.open(path, os.O_RDONLY)
    at = 0
    while read := len(os.pread(file, request, at)):
        at += read
    assert at == os.path.getsize(path)
    os.close(file)

work = {'warm': warm, 'scan': scan}[what]
begun = time.monotonic()
with ThreadPoolExecutor(len(files)) as pool:
    list(pool.map(lambda file: work(file, int(size)), files))
print(f'{time.monotonic() - begun:.3f}')
END
figures() { # reads of base, and pages that came with them though they are on flash
    "$1" status --json "$work/mnt" | python3 -c '
import json, sys
status = json.load(sys.stdin)
base = next(device for device in status["devices"] if device["role"] == "base")
print(base["reads"]["count"], (status["stats"]["tier"] or {}).get("bridged", 0))'
}

for streams in $STREAMS; do
    rm -rf "$work/base"
    mkdir -p "$work"/{base/base/5,mnt}
    echo 15 > "$work/base/PG_VERSION"
    files=()
    for ((file = 0; file < streams; file++)); do
        dd if=/dev/urandom of="$work/base/base/5/$((16400 + file))" bs=1M count=$((MIB / streams)) status=none
        files+=("$work/mnt/base/5/$((16400 + file))")
    done
    sync
    disk=(--page-size 8KiB)
    [[ $EMULATE == none ]] || disk+=(--emulate-base "$EMULATE" --emulate-capacity "$((MIB * FULL))M")
    for program in "${programs[@]}" empty none; do
        tier=(--cache "$work/cache" --size "$((MIB * 2))M" --format --policy lru) name=$program
        if [[ $program == none ]]; then
            tier=(--policy none) program=${programs[-1]} name="no tier"
        elif [[ $program == empty ]]; then
            program=${programs[-1]} name="nothing on flash"
        fi
        rm -f "$work/cache"
        "$program" mount "$work/base" "$work/mnt" "${tier[@]}" "${disk[@]}" --log "$work/log" > /dev/null
        mounted=$program
        if [[ $name != "no tier" ]]; then
            if [[ $name != "nothing on flash" ]]; then
                python3 "$work/scan.py" warm "$EVERY" "${files[@]}" > /dev/null
                sleep 1
            fi
            "$program" policy "$work/mnt" priority > /dev/null
        fi
        before=$(figures "$program")
        seconds=()
        for ((repeat = 0; repeat < REPEATS; repeat++)); do
            seconds+=("$(python3 "$work/scan.py" scan "$REQUEST" "${files[@]}")")
        done
        python3 - "$streams" "$name" "$before" "$(figures "$program")" "${seconds[@]}" << 'END'
import statistics, sys
streams, name, before, after, *seconds = sys.argv[1:]
reads, bridged = (int(b) - int(a) for a, b in zip(before.split(), after.split()))
seconds = [float(second) for second in seconds]
print(f'{streams} scans, {name}: {statistics.median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f}, '
      f'{len(seconds)} runs); each run {reads / len(seconds):.0f} reads of base, {bridged / len(seconds):.0f} pages bridged', flush=True)
END
        "$program" umount "$work/mnt" > /dev/null
        mounted=
    done
done
