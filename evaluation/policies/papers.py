#!/usr/bin/env python3
"""Markdown tables of the JSON files that papers.sh wrote.

papers.py DIRECTORY
"""

import glob
import json
import os
import sys

HINTED = ("clic", "dp-clic", "clic-hybrid")
TIES = ("refuse", "overdue", "informed")
NO_HINTS = {"OLTP", "P3"}


def runs(directory, name):
    with open(os.path.join(directory, name + ".json"), encoding="utf-8") as file:
        return {run["policy"]: run for run in json.load(file)}


def ratio(run):
    return 100 * run["read_hit_ratio"]


def table(title, head, rows, means_over):
    print(f"\n### {title}\n")
    print("| trace | " + " | ".join(head) + " |\n|---|" + "---:|" * len(head))
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |")
    columns = list(zip(*(rows[name] for name in means_over)))
    means = [f"{sum(column) / len(column):.1f}" for column in columns]
    print("| **mean of the captures** | " + " | ".join(means) + " |")


def main():
    directory = sys.argv[1]
    paths = glob.glob(os.path.join(directory, "*.paper.json"))
    names = sorted(os.path.basename(path)[: -len(".paper.json")] for path in paths)
    captures = [name for name in names if name not in NO_HINTS]
    papers, ties, writes = {}, {}, {}
    for name in names:
        bounds, paper, fitted = (runs(directory, f"{name}.{kind}") for kind in ("bounds", "paper", "fitted"))
        cells = [ratio(bounds["lru"]), ratio(paper["tac"]), ratio(paper["tac:paper"])]
        for policy in HINTED:
            cells += [ratio(run) for run in (paper[policy], paper[policy + ":paper"], fitted[policy + ":paper"])]
        papers[name] = cells + [ratio(bounds["opt-bypass"])]
        ruled = {rule: runs(directory, f"{name}.{rule}") for rule in TIES}
        ties[name] = [ratio(ruled[rule][policy]) for policy in HINTED for rule in TIES]
        writes[name] = [ruled[rule][policy]["flash_writes"] / 1000 for policy in HINTED for rule in TIES]
    head = ["LRU", "TAC", "paper"]
    for policy in ("CLIC", "DP-CLIC", "hybrid"):
        head += [policy, "paper", "paper, own windows"]
    table("Read hit ratio in %, default beside paper", head + ["OPT"], papers, captures)
    head = [f"{policy} {rule}" for policy in ("CLIC", "DP-CLIC", "hybrid") for rule in TIES]
    table("Read hit ratio in % by the rule for equal priorities", head, ties, captures)
    table("The same: thousands of pages written to flash", head, writes, captures)
    print("\n### CAC: device time in ms a transaction, database 3 times the tier\n")
    print("| capture | pool | GD2L+CAC | paper |\n|---|---:|---:|---:|")
    for path in sorted(glob.glob(os.path.join(directory, "joint-*.json"))):
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        default, paper = ([run for run in found if run["combination"] == "gd2l+cac" + end] for end in ("", ":paper"))
        for one, other in zip(default, paper):
            assert one["pool_pages"] == other["pool_pages"]
            print(f"| {os.path.basename(path)[6:-5]}-tpcc-0 | {100 * one['pool']:.0f} % "
                  f"| {one['ms_per_transaction']:.1f} | {other['ms_per_transaction']:.1f} |")


main()
