#!/usr/bin/env python3
"""Markdown tables of the JSON files that value.sh wrote, beside the figures of policies.md.

value.py DIRECTORY POLICIES.md
"""

import glob
import json
import os
import re
import sys

# Parameters were looked at on these; the others judge.
CHOSEN_ON = {"postgres-tpcc-50", "postgres-tpch-10", "mariadb-tpcc-10", "mariadb-tpch-50", "pg15-pgbench"}
NO_HINTS = {"OLTP", "P3", "cloudPhysicsIO"}


def box(path):
    """Hit ratio in % by size, trace and policy; "best" is the best online policy."""
    figures, size, head = {}, None, None
    for line in open(path, encoding="utf-8"):
        title = re.match(r"### Read hit ratio in %, tier of (\d+) %", line)
        if title:
            size, head = int(title[1]), None
        elif line.startswith("###"):
            size = None
        if size is None or not line.startswith("|"):
            continue
        cells = [cell.strip(" *") for cell in line.strip().strip("|").split("|")]
        if head is None:
            head = cells
        elif not cells[0].startswith("---"):
            row = {}
            for name, cell in zip(head[1:], cells[1:]):
                row[name] = float(cell.replace("*", "").split()[-1])
            row["best"] = max(value for name, value in row.items() if name != "opt-bypass")
            figures[size, cells[0]] = row
    return figures


def mean(values):
    values = list(values)
    return f"{sum(values) / len(values):.1f}" if values else "-"


def main():
    directory, policies = sys.argv[1:]
    figures = box(policies)
    gaps, wears, noise = {}, {}, {}
    print("| trace | tier | LRU | ARC | TAC | CLIC | best of the box | **value** | OPT | gap closed | writes / OPT's |")
    print("|---|---:|" + "---:|" * 9)
    for path in sorted(glob.glob(os.path.join(directory, "*.json"))):
        name = os.path.basename(path)[: -len(".json")]
        runs = json.load(open(path, encoding="utf-8"))
        by = {(run["policy"], run["capacity_pages"]): run for run in runs}
        for run in (run for run in runs if run["policy"] == "value"):
            hit = 100 * run["read_hit_ratio"]
            if name.startswith("noise-"):
                noise[name[6:]] = hit
                continue
            opt = by["opt-bypass", run["capacity_pages"]]
            size = round(100 * run["capacity_pages"] / run["distinct_pages"])
            row = figures[size, name]
            best = 100 * opt["read_hit_ratio"]
            gap = 100 * (hit - row["lru"]) / (best - row["lru"])
            wear = run["flash_writes"] / opt["flash_writes"]
            gaps[name, size], wears[name, size] = gap, wear
            shown = [row["lru"], row["arc"], row["tac"], row["clic"], row["best"]]
            cells = " | ".join(f"{value:.1f}" for value in shown)
            print(f"| {name} | {size} % | {cells} | **{hit:.1f}** | {best:.1f} | {gap:.0f} % | {wear:.2f} |")
    hinted = {key for key in gaps if key[0] not in NO_HINTS}
    chosen = {key for key in hinted if key[0] in CHOSEN_ON}
    print("\n| mean over hinted traces | gap closed, % | writes / OPT's |\n|---|---:|---:|")
    for title, keys in (("chosen on", chosen), ("judged on", hinted - chosen), ("all", hinted)):
        print(f"| {title} | {mean(gaps[k] for k in keys)} | {sum(wears[k] for k in keys) / len(keys):.2f} |")
    if not noise:
        return
    print("\n| noise types, tier of 10 % | value |\n|---|---:|")
    for name, hit in noise.items():
        print(f"| {name} | {hit:.1f} |")


if __name__ == "__main__":
    main()
