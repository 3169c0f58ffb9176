#!/usr/bin/env python3
"""What recording costs a mount: CPU time a request with and without, the figure of docs/advise.md.

    evaluation/advise/recording.py THERMOCLINE [ROUNDS [SECONDS [READERS]]]
    SHARE=auto evaluation/advise/recording.py ...   record a sample, as `advise` does

Readers ask for 8-KiB pages at random, past the kernel's cache, as fast as they can; all pages are in
the mount's pool, so a request costs the mount as little as it can. Rounds without and with a
recording take turns. CPU time is that of all threads of the mount, by the scheduler's own counting.
Needs root and /dev/fuse; all on loopback files in TMPDIR.
"""

import json
import mmap
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGE = 8192
PAGES = 4096


def read(path, seconds, seed, done):
    draw = random.Random(seed)
    buffer = mmap.mmap(-1, PAGE)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for _ in range(50):
            os.preadv(file, [buffer], draw.randrange(PAGES) * PAGE)
        count += 50
    done.put(count)


def cpu(pid):
    """Nanoseconds that the process's threads ran; those of threads that ended are lost."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass
    return total


def load(path, seconds, readers):
    """Requests answered."""
    done = multiprocessing.Queue()
    all_ = [multiprocessing.Process(target=read, args=(path, seconds, n, done)) for n in range(readers)]
    for process in all_:
        process.start()
    count = sum(done.get() for _ in all_)
    for process in all_:
        process.join()
    return count


def main():
    thermocline = os.path.abspath(sys.argv[1])
    rounds, seconds, readers = ([int(x) for x in sys.argv[2:]] + [7, 5, 2][len(sys.argv) - 2 :])[:3]
    with tempfile.TemporaryDirectory(prefix="thermocline-recording-") as work:
        work = Path(work)
        (work / "base/base/5").mkdir(parents=True)
        (work / "mnt").mkdir()
        path = work / "base/base/5/16384"
        path.write_bytes(os.urandom(PAGE) * PAGES)
        run = lambda *arguments: subprocess.run([thermocline, *map(str, arguments)], check=True, capture_output=True)
        run("mount", work / "base", work / "mnt", "--cache", work / "cache", "--size", "64MiB",
            "--pool", "64MiB", "--page-size", "8KiB", "--log", work / "log")
        try:
            status = run("status", work / "mnt", "--once", "--json").stdout
            pid = json.loads(status)["mount"]["pid"]
            file = work / "mnt/base/5/16384"
            load(file, 4, readers)
            figures = {"without": [], "with": []}
            for turn in range(2 * rounds):
                how = ("without", "with")[turn % 2]
                if how == "with":
                    trace = work / f"{turn}.parquet"
                    start = [thermocline, "record", work / "mnt", trace, "--for", f"{seconds + 60}s",
                             "--share", os.environ.get("SHARE", "100%")]
                    recording = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    # `auto` looks at the load for two seconds.
                    load(file, 4, readers)
                before, begin = cpu(pid), time.monotonic()
                count = load(file, seconds, readers)
                elapsed = time.monotonic() - begin
                used = cpu(pid) - before
                if how == "with":
                    # Time that is left is not measured.
                    run("record", work / "mnt", "--stop")
                    recording.wait()
                    trace.unlink()
                figures[how].append(used / count / 1000)
                print(f"{how:8} {count / elapsed:8.0f} requests/s  {used / count / 1000:6.2f} us a request", flush=True)
            for how, all_ in figures.items():
                print(f"{how:8} {statistics.median(all_):.2f} us ({min(all_):.2f}-{max(all_):.2f})")
            pairs = [100 * (b / a - 1) for a, b in zip(figures["without"], figures["with"])]
            print(f"more, by pair: {statistics.median(pairs):+.1f} % ({min(pairs):+.1f} to {max(pairs):+.1f})")
        finally:
            run("umount", work / "mnt")


main()
