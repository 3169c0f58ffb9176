#!/usr/bin/env python3
"""Markdown tables of the JSON files that gap.sh wrote.

gap.py DIRECTORY

*Gap closed* is the way from LRU to the optimum (with bypass): by read hits, and by the time that base
takes. The optimum is one of hits, so a policy may close more than all of it by time.
"""

import json
import pathlib
import re
import statistics
import sys

# Parameters were looked at on these; the others judge.
CHOSEN_ON = {"postgres-tpcc-50", "postgres-tpch-10", "mariadb-tpcc-10", "mariadb-tpch-50"}


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def cells(directory):
    """Of each policy and seed: by capture and size, what share of the way it went."""
    found = {}
    for path in sorted(pathlib.Path(directory).glob("*-bounds.json")):
        name = path.name.removesuffix("-bounds.json")
        bounds = {(run["policy"], run["capacity_pages"]): run for run in load(path)}
        for seeded in sorted(path.parent.glob(f"{name}-seed-*.json")):
            seed = seeded.stem.rpartition("-")[2]
            for run in load(seeded):
                slots = run["capacity_pages"]
                lru, best = bounds["lru", slots], bounds["opt-bypass", slots]

                def share(key):
                    return 100 * (run[key] - lru[key]) / (best[key] - lru[key])

                size = round(100 * slots / run["distinct_pages"])
                found.setdefault((run["policy"], seed), {})[name, size] = {
                    "hits": share("read_hit_ratio"),
                    "base": share("base_device_ms"),
                    "written": run["flash_writes"] / best["flash_writes"],
                    "ratio": 100 * run["read_hit_ratio"],
                }
    return found


def mean(values):
    return f"{statistics.mean(values):.1f}"


def seeds_table(found):
    print("| policy, seed | hits | chosen on | judged on | base's time | written: median | mean |")
    print("|---|" + "---:|" * 6)
    for (policy, seed), of in sorted(found.items()):
        chosen = [one["hits"] for (name, _), one in of.items() if name in CHOSEN_ON]
        judged = [one["hits"] for (name, _), one in of.items() if name not in CHOSEN_ON]
        written = [one["written"] for one in of.values()]
        print(
            f"| {policy}, {seed} | **{mean(one['hits'] for one in of.values())}** | {mean(chosen)} "
            f"| {mean(judged)} | {mean(one['base'] for one in of.values())} "
            f"| {statistics.median(written):.2f} | {statistics.mean(written):.2f} |"
        )


def captures_table(found, key, digits):
    """Medians of the seeds."""
    policies = sorted({policy for policy, _ in found})
    names = sorted({name for of in found.values() for name, _ in of})
    sizes = sorted({size for of in found.values() for _, size in of})
    heads = [f"{policy}, {size} %" for policy in policies for size in sizes]
    print(f"| capture | {' | '.join(heads)} |")
    print("|---|" + "---:|" * len(heads))
    for name in names:
        row = []
        for policy in policies:
            seeds = [of for (of_policy, _), of in found.items() if of_policy == policy]
            row += [statistics.median(of[name, size][key] for of in seeds) for size in sizes]
        print(f"| `{name}` | {' | '.join(f'{value:.{digits}f}' for value in row)} |")


def noise_table(directory):
    hits = {}
    for path in sorted(pathlib.Path(directory).glob("*-noise-*.json")):
        name, types = re.fullmatch(r"(.*)-noise-(\d)", path.stem).groups()
        for run in load(path):
            hits.setdefault((name, run["policy"]), {})[types] = 100 * run["read_hit_ratio"]
    if not hits:
        return
    print("| capture, policy | 0 | 1 | 2 | 3 |")
    print("|---|---:|---:|---:|---:|")
    for (name, policy), by_types in sorted(hits.items()):
        row = " | ".join(f"{by_types[types]:.1f}" for types in sorted(by_types))
        print(f"| `{name}`, {policy} | {row} |")


def main():
    found = cells(sys.argv[1])
    print("Gap closed, % of it, means of all captures and sizes:\n")
    seeds_table(found)
    for title, key, digits in (
        ("Gap closed by hits, %", "hits", 1),
        ("Gap closed by base's time, %", "base", 0),
        ("Pages written to flash, times the optimum's", "written", 2),
        ("Read hits, %", "ratio", 1),
    ):
        print(f"\n{title}, medians of the seeds:\n")
        captures_table(found, key, digits)
    print("\nRead hits in %, tier of 10 %, by the number of noise hint types:\n")
    noise_table(sys.argv[1])


if __name__ == "__main__":
    main()
