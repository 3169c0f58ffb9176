#!/usr/bin/env python3
"""Could a filter replace a policy's outqueue? The figures of evaluation/results/filter.md.

    evaluation/filter/seen.py THERMOCLINE TRACE...

1. Bytes a slot that policies hold for pages that are not on flash: of `simulate --json`.
2. Read hits of an LRU tier that admits a page when it was seen before, where "seen before" is told by
   an exact outqueue, by two Bloom filters in turns, or by answers that come late.

Only misses ask and are remembered, as with an outqueue. Tier: 10 % of the pages; outqueue: 5 pages a
slot, as CLIC has it. A write of a page on flash renews it. The first fifth warms up.
Deterministic: one run is enough.
"""

import csv
import json
import subprocess
import sys
import tempfile
from collections import OrderedDict, deque
from hashlib import blake2b

SHARE = 0.10
REMEMBERED = 5
POLICIES = "lru,2q,s3-fifo,arc,clic,value"


class Exact:
    """The last pages that missed, first in, first out."""

    def __init__(self, room):
        self.room, self.pages = room, OrderedDict()

    def seen(self, page):
        return page in self.pages

    def add(self, page):
        self.pages.pop(page, None)
        self.pages[page] = None
        if len(self.pages) > self.room:
            self.pages.popitem(last=False)


class Bloom:
    """Two filters that take turns: when one has half of the room, the older one is emptied."""

    def __init__(self, room, bits):
        self.room = max(1, room // 2)
        self.bits = self.room * bits
        self.hashes = max(1, round(bits * 0.69))
        self.filters = [bytearray(self.bits // 8 + 1) for _ in range(2)]
        self.count = 0

    def places(self, page):
        digest = blake2b(repr(page).encode(), digest_size=16).digest()
        first, step = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1
        return [(first + turn * step) % self.bits for turn in range(self.hashes)]

    def seen(self, page):
        places = self.places(page)
        has = lambda bits: all(bits[place >> 3] >> (place & 7) & 1 for place in places)
        return any(has(bits) for bits in self.filters)

    def add(self, page):
        if self.count == self.room:
            self.filters = [bytearray(self.bits // 8 + 1), self.filters[0]]
            self.count = 0
        new = self.filters[0]
        places = self.places(page)
        self.count += not all(new[place >> 3] >> (place & 7) & 1 for place in places)
        for place in places:
            new[place >> 3] |= 1 << (place & 7)


class Late:
    """An exact outqueue whose answers come `delay` questions later.

    What to do with a late "yes": "again" reads the page once more from base and admits it, "next"
    admits it when it misses again within as many questions as the outqueue remembers.
    """

    def __init__(self, room, delay, then):
        self.exact, self.delay, self.then = Exact(room), delay, then
        self.asked, self.wanted = deque(), Exact(room)
        self.read_again = []

    def seen(self, page):
        self.asked.append((page, self.exact.seen(page)))
        if len(self.asked) > self.delay:
            old, yes = self.asked.popleft()
            if yes and self.then == "next":
                self.wanted.add(old)
            elif yes:
                self.read_again.append(old)
        return self.then == "next" and self.wanted.seen(page)

    def add(self, page):
        self.exact.add(page)


class Always:
    def seen(self, page):
        return True

    def add(self, page):
        pass


def run(requests, slots, told):
    """Read hits, pages admitted, pages read again: shares of reads after the warm-up."""
    tier = OrderedDict()
    hits = reads = admitted = again = 0
    warm = len(requests) // 5

    def admit(page):
        tier[page] = None
        if len(tier) > slots:
            tier.popitem(last=False)

    for at, (page, read) in enumerate(requests):
        counts = at >= warm
        on_flash = page in tier
        reads += counts and read
        if on_flash:
            tier.move_to_end(page)
            hits += counts and read
            continue
        yes = told.seen(page)
        told.add(page)
        if yes:
            admit(page)
            admitted += counts
        while getattr(told, "read_again", None):
            late = told.read_again.pop()
            if late not in tier:
                admit(late)
                admitted += counts
                again += counts
    return [100 * figure / reads for figure in (hits, admitted, again)]


def pages(thermocline, trace, page_size):
    """Page requests of the trace: (page, is a read)."""
    requests, numbers = [], {}
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        convert = [thermocline, "trace", "convert", trace, file.name, "--force"]
        subprocess.run(convert, check=True, capture_output=True)
        for row in csv.DictReader(open(file.name)):
            if row["operation"] not in ("read", "write") or row["served"] == "bypass":
                continue
            first = int(row["offset"]) // page_size
            last = (int(row["offset"]) + int(row["length"]) - 1) // page_size
            for index in range(first, last + 1):
                key = (row["object"], index)
                number = numbers.setdefault(key, len(numbers))
                requests.append((number, row["operation"] == "read"))
    return requests, len(numbers)


def memory(thermocline, trace, page_size):
    """Bytes a slot of each policy beyond LRU's."""
    command = [thermocline, "simulate", trace, "--page-size", str(page_size), "--policy", POLICIES]
    command += ["--flash", f"{100 * SHARE:.0f}%", "--json", "--threads", "1"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    rows = said["results"] if isinstance(said, dict) else said
    held = {row["policy"]: row["metadata_bytes"] / row["slots"] for row in rows if row["slots"]}
    return {name: held[name] - held["lru"] for name in POLICIES.split(",") if name in held}


def main():
    thermocline, *traces = sys.argv[1:]
    for trace in traces:
        name = trace.rsplit("/", 1)[-1].removesuffix(".parquet")
        page_size = 16384 if name.startswith("mariadb") else 8192
        beyond = memory(thermocline, trace, page_size)
        said = ", ".join(f"{policy} {bytes_:.0f}" for policy, bytes_ in beyond.items())
        print(f"\n{name}: bytes a slot beyond LRU's: {said}\n")
        requests, distinct = pages(thermocline, trace, page_size)
        slots = int(distinct * SHARE)
        room = REMEMBERED * slots
        ways = [("everything is admitted", 0, Always()), ("exact outqueue", 150, Exact(room))]
        for bits in (4, 8, 12):
            # Two filters of half the room each.
            ways.append((f"Bloom filters, {bits} bits", REMEMBERED * bits / 8, Bloom(room, bits)))
        for share in (1 / 16, 1 / 4, 1):
            for then in ("again", "next"):
                late = Late(room, int(share * slots), then)
                # The Buffered Bloom filter keeps 16 bytes of each question under way.
                ways.append((f"late by {share:g} questions a slot, {then}", 16 * share, late))
        print("| told by | DRAM, bytes a slot | read hits, % | admitted, % of reads | read again, % of reads |")
        print("|---|---:|---:|---:|---:|")
        for what, bytes_, told in ways:
            hits, admitted, again = run(requests, slots, told)
            print(f"| {what} | {bytes_:.1f} | {hits:.2f} | {admitted:.2f} | {again:.2f} |", flush=True)


main()
