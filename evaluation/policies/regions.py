#!/usr/bin/env python3
"""Markdown tables of the JSON files that regions.sh wrote, beside the figures of policies.md.

regions.py DIRECTORY POLICIES.md
"""

import glob
import json
import os
import sys

from value import CHOSEN_ON, NO_HINTS, box

PAGES = (8, 16, 32, 64)


def half(name):
    if name in NO_HINTS:
        return "without hints"
    return "chosen on" if name in CHOSEN_ON else "judged on"


def main():
    directory, policies = sys.argv[1:]
    figures, found = box(policies), {}
    for path in glob.glob(os.path.join(directory, "*.json")):
        name, pages, _ = os.path.basename(path).rsplit(".", 2)
        for run in json.load(open(path, encoding="utf-8")):
            size = round(100 * run["capacity_pages"] / run["distinct_pages"])
            if run["policy"] == "tac":
                hit = 100 * run["read_hit_ratio"]
                found.setdefault((name, size), {})[int(pages)] = hit, run["flash_writes"]
    print("| trace | tier | LRU | 8 | 16 | **32** | 64 | OPT | written, 8 | 32 | 64 |")
    print("|---|---:|" + "---:|" * 9)
    apart = {}
    for (name, size), of in sorted(found.items()):
        row = figures[size, name]
        hits = [f"{of[pages][0]:.1f}" for pages in PAGES]
        hits[2] = f"**{hits[2]}**"
        written = [f"{of[pages][1] / 1000:.0f}" for pages in (8, 32, 64)]
        cells = [f"{row['lru']:.1f}", *hits, f"{row['opt-bypass']:.1f}", *written]
        print(f"| {name} | {size} % | " + " | ".join(cells) + " |")
        for pages in PAGES:
            apart.setdefault((pages, half(name)), []).append(of[pages][0] - of[32][0])
    halves = ("chosen on", "judged on", "without hints")
    print("\n| pages of a region | " + " | ".join(halves) + " |\n|---:|---:|---:|---:|")
    for pages in PAGES:
        all_of = [apart.get((pages, which), []) for which in halves]
        cells = [f"{sum(a) / len(a):+.1f} ({min(a):+.1f} to {max(a):+.1f})" if a else "-" for a in all_of]
        print(f"| {pages} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
