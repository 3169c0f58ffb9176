#!/usr/bin/env python3
"""Markdown tables of the JSON files that auto.sh wrote.

auto.py DIRECTORY
"""

import glob
import json
import os
import sys

FINALISTS = ["value", "value-time", "clic", "arc", "lru"]
NO_HINTS = {"OLTP", "P3", "cloudPhysicsIO", "pg15-pgbench"}


def gap(row, policy):
    """Share of the way from LRU to the optimum, %."""
    low, high = row["lru"]["read_hit_ratio"], row["opt-bypass"]["read_hit_ratio"]
    return 100 * (row[policy]["read_hit_ratio"] - low) / (high - low)


def writes(row, policy):
    return row[policy]["flash_writes"] / row["opt-bypass"]["flash_writes"]


def main():
    rows = {}
    for path in glob.glob(os.path.join(sys.argv[1], "*.json")):
        name = os.path.basename(path)[: -len(".json")]
        for run in json.load(open(path, encoding="utf-8")):
            size = round(100 * run["capacity_pages"] / run["distinct_pages"])
            rows.setdefault((name, size), {})[run["policy"]] = run
    shown = ["lru", "arc", "clic", "tac", "value", "auto", "opt-bypass"]
    print("| trace | tier | LRU | ARC | CLIC | TAC | value | **auto** | OPT | gap closed: value, auto | writes / OPT's: value, auto |")
    print("|---|---:|" + "---:|" * 9)
    order = lambda key: (key[0].startswith("turns-"), key[0].split("-")[0] == "turns" and int(key[0].split("-")[1]), key)
    for key in sorted(rows, key=order):
        row = rows[key]
        cells = " | ".join(
            ("**%.1f**" if policy == "auto" else "%.1f") % (100 * row[policy]["read_hit_ratio"]) for policy in shown
        )
        gaps = ", ".join(f"{gap(row, policy):.0f} %" for policy in ("value", "auto"))
        wears = ", ".join(f"{writes(row, policy):.2f}" for policy in ("value", "auto"))
        print(f"| {key[0]} | {key[1]} % | {cells} | {gaps} | {wears} |")
    hinted = [row for key, row in rows.items() if key[0] not in NO_HINTS and not key[0].startswith("turns-")]
    if not hinted:
        return
    print("\n| mean over captures | gap closed, % | writes / OPT's |\n|---|---:|---:|")
    for policy in ["auto", *FINALISTS[:-1], "tac"]:
        mean = lambda of: sum(of(row, policy) for row in hinted) / len(hinted)
        print(f"| {policy} | {mean(gap):.1f} | {mean(writes):.2f} |")


main()
