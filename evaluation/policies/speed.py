#!/usr/bin/env python3
"""LRU, FIFO and ARC beside libCacheSim on one trace, in turns: a table of evaluation/results/policy-speed.md.

speed.py THROUGHPUT [REQUESTS]

THROUGHPUT is target/release/examples/throughput (cargo build --release -p thermocline-sim --example
throughput). Needs `pip install libcachesim`. The trace is made here: a million pages, the n-th of them asked
for with probability about 1/n, a tenth of them in the cache. Both are told to count every object as one page.
libCacheSim is measured around its process_trace, which reads the file (24 bytes a request) as it goes; ours
around decisions alone, with the requests in memory.
"""

import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import libcachesim as lcs

PAGES = 1 << 20
CAPACITY = PAGES // 10
TURNS = 5
POLICIES = {"lru": lcs.LRU, "fifo": lcs.FIFO, "arc": lcs.ARC}


def write(path, requests):
    draw = random.Random(1)
    with open(path, "wb") as file:
        for at in range(requests):
            rank = int((PAGES + 1) ** draw.random())
            page = (min(rank, PAGES) * 0x9E3779B1) & (PAGES - 1)
            file.write(struct.pack("<IQIq", at // 1000, page, 1, -1))


def theirs(cache, path, requests):
    params = lcs.ReaderInitParam(ignore_obj_size=True)
    reader = lcs.TraceReader(trace=path, trace_type=lcs.TraceType.ORACLE_GENERAL_TRACE, reader_init_params=params)
    cache = cache(cache_size=CAPACITY, hashpower=20)
    begin = time.perf_counter()
    misses, _ = cache.process_trace(reader)
    taken = time.perf_counter() - begin
    return taken * 1e9 / requests, misses


def ours(program, name, path, requests):
    line = subprocess.check_output([program, path, name, str(CAPACITY)], text=True).split()
    return 1e3 / float(line[line.index("M") - 1]), int(line[3]) / requests


def cell(values):
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def main():
    program = sys.argv[1]
    requests = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000_000
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "zipf.oracleGeneral.bin")
        write(path, requests)
        print("| policy | ours, ns a request | libCacheSim | miss ratio, ours | libCacheSim |")
        print("|---|---:|---:|---:|---:|")
        for name, cache in POLICIES.items():
            turns = [(ours(program, name, path, requests), theirs(cache, path, requests)) for _ in range(TURNS)]
            mine, other = zip(*turns)
            cells = [cell([run[0] for run in runs]) for runs in (mine, other)]
            cells += [f"{runs[0][1]:.4f}" for runs in (mine, other)]
            print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
