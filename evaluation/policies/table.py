#!/usr/bin/env python3
"""Markdown tables of the JSON files that run.sh wrote.

table.py DIRECTORY
"""

import glob
import json
import os
import statistics
import sys

FUTURE = ("opt", "opt-bypass")


def percent(value):
    return "-" if value is None else f"{100 * value:.1f}"


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main_table(name, runs):
    """Read hit ratio by policy and size; the best online policy of each size is bold."""
    runs = [run for run in runs if run["policy"] != "none"]
    sizes = sorted({run["capacity_pages"] for run in runs})
    policies = list(dict.fromkeys(run["policy"] for run in runs))
    ratio = {(run["policy"], run["capacity_pages"]): run["read_hit_ratio"] for run in runs}
    first = runs[0]
    print(f"\n### {name}\n")
    print(
        f"{first['requests']:,} page requests counted, {first['reads']:,} of them reads, "
        f"{first['distinct_pages']:,} different pages, "
        f"{first['compulsory_misses']:,} compulsory misses.\n"
    )
    head = [f"{size:,}p ({100 * size / first['distinct_pages']:.0f} %)" for size in sizes]
    print("| policy | " + " | ".join(head) + " | wear | share of OPT |")
    print("|---|" + "---:|" * (len(sizes) + 2))
    online = [p for p in policies if p not in FUTURE]
    best = {s: max((ratio.get((p, s)) or 0.0) for p in online) for s in sizes}
    middle = sizes[len(sizes) // 2]

    def order(policy):
        return (policy in FUTURE, -(ratio.get((policy, middle)) or 0.0))

    for policy in sorted(policies, key=order):
        cells = []
        for size in sizes:
            value = ratio.get((policy, size))
            text = percent(value)
            if policy in online and value is not None and value >= best[size] - 0.0005:
                text = f"**{text}**"
            cells.append(text)
        run = next(r for r in runs if (r["policy"], r["capacity_pages"]) == (policy, middle))
        wear = "-" if run["wear"] is None else f"{run['wear']:.2f}"
        print(f"| {policy} | " + " | ".join(cells) + f" | {wear} | {percent(run['opt_share'])} |")


def learned_table(runs, policy="clic", rows=8):
    """The hint sets CLIC valued most of those with 100 requests, at the middle size."""
    sizes = sorted({run["capacity_pages"] for run in runs})
    middle = sizes[len(sizes) // 2]
    for run in runs:
        if (run["policy"], run["capacity_pages"]) != (policy, middle) or not run["learned"]:
            continue
        learned = run["learned"]
        print(
            f"\nWhat {policy} had learned at {middle:,} pages "
            f"({learned['windows']} windows of {learned['window']:,} requests):\n"
        )
        print("| Pr | N | Nr | D | on flash | hint set |")
        print("|---:|---:|---:|---:|---:|---|")
        frequent = [row for row in learned["hint_sets"] if row["requests"] >= 100]
        for row in frequent[:rows]:
            print(
                f"| {row['priority']:.2e} | {row['requests']:.0f} | {row['rereads']:.0f} "
                f"| {row['distance']:.0f} | {row['resident']} | {row['hints']} |"
            )


DEFAULT = "auto"
# Those that the default's race is between (crates/core/src/policy/auto).
FINALISTS = ("value", "value-time", "clic", "arc", "tac", "lru")
COLUMNS = (DEFAULT, "value", "lru", "arc", "tq", "tac", "clic", "dp-clic")


def summary(traces, share):
    """One row for each trace: a few policies, the best of the others, the optimum."""
    print(f"\n### Read hit ratio in %, tier of {share} % of the different pages\n")
    print("| trace | " + " | ".join(COLUMNS) + f" | best of the rest | opt-bypass | gap closed by {DEFAULT} |")
    print("|---|" + "---:|" * len(COLUMNS) + "---|---:|---:|")
    for name, runs in traces.items():
        found = {policy: run["read_hit_ratio"] or 0.0 for policy, run in at(runs, share).items()}
        if not found:
            continue
        rest = [p for p in found if p not in COLUMNS and p not in FUTURE]
        other = max(rest, key=found.get)
        top = max(value for policy, value in found.items() if policy not in FUTURE)
        cells = []
        for policy in COLUMNS:
            text = percent(found[policy])
            cells.append(f"**{text}**" if found[policy] >= top - 0.0005 else text)
        best = f"{other} {percent(found[other])}"
        if found[other] >= top - 0.0005:
            best = f"**{best}**"
        closed = percent(gap(found, DEFAULT))
        print(
            f"| {name} | " + " | ".join(cells) + f" | {best} | {percent(found['opt-bypass'])} | {closed} |"
        )


def at(runs, share):
    """The run of each policy at a tier of so many per cent of the different pages."""
    found = {}
    for run in runs:
        part = 100 * run["capacity_pages"] / run["distinct_pages"]
        if abs(part - share) < 0.3 and run["policy"] != "none":
            found[run["policy"]] = run
    return found


def gap(found, policy):
    """The way from LRU to the optimum that a policy goes, of read hit ratios."""
    way = found["opt-bypass"] - found["lru"]
    return (found[policy] - found["lru"]) / way if way > 0 else None


def means(traces):
    """Gap closed and flash writes against the optimum's, the mean of the captures' cells."""
    closed, writes = {}, {}
    for name, runs in traces.items():
        if not name.startswith(("mariadb-", "postgres-")):
            continue
        for share in (5, 10, 20):
            cell = at(runs, share)
            found = {policy: run["read_hit_ratio"] or 0.0 for policy, run in cell.items()}
            for policy, run in cell.items():
                closed.setdefault(policy, []).append(gap(found, policy))
                least = cell["opt-bypass"]["flash_writes"]
                writes.setdefault(policy, []).append(run["flash_writes"] / least)
    print("\n### Mean over the captures at 5, 10 and 20 %\n")
    print("| policy | gap closed, % | least of a cell, % | flash writes / the optimum's: mean | median |")
    print("|---|---:|---:|---:|---:|")
    for policy in sorted(closed, key=lambda p: (p in FUTURE, -statistics.mean(closed[p]))):
        name = f"**{policy}**" if policy == DEFAULT else policy
        print(
            f"| {name} | {percent(statistics.mean(closed[policy]))} | {percent(min(closed[policy]))} "
            f"| {statistics.mean(writes[policy]):.2f} | {statistics.median(writes[policy]):.2f} |"
        )


def base_times(traces):
    """What base has to do below the default, against the best of the finalists in each cell."""
    shares = (5, 10, 20)
    every = []
    print(f"\n### Base's time below {DEFAULT}, times that below the finalist with the least\n")
    print("| trace | " + " | ".join(f"{share} % | least" for share in shares) + " |")
    print("|---|" + "---:|---|" * len(shares))
    for name, runs in traces.items():
        cells = []
        for share in shares:
            found = {policy: run["base_device_ms"] for policy, run in at(runs, share).items()}
            if not found:
                cells.append("- | -")
                continue
            least = min(FINALISTS, key=found.get)
            every.append(found[DEFAULT] / found[least])
            cells.append(f"{every[-1]:.3f} | {least}")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(f"\nMean {statistics.mean(every):.3f}, median {statistics.median(every):.3f}.")


def noise_table(directory):
    found = {}
    for path in sorted(glob.glob(os.path.join(directory, "noise-*.json"))):
        stem = os.path.basename(path)[len("noise-") : -len(".json")]
        name, types = stem.rsplit("-", 1)
        for run in load(path):
            if run["policy"] != "none":
                found.setdefault(name, {}).setdefault(run["policy"], {})[int(types)] = run
    for name, policies in found.items():
        print(f"\n### Noise hints: {name}, tier of 10 %\n")
        types = sorted({t for runs in policies.values() for t in runs})
        print("| policy | " + " | ".join(f"T = {t}" for t in types) + " |")
        print("|---|" + "---:|" * len(types))
        for policy, runs in policies.items():
            cells = [percent(runs[t]["read_hit_ratio"]) if t in runs else "-" for t in types]
            print(f"| {policy} | " + " | ".join(cells) + " |")


def main():
    directory = sys.argv[1]
    traces = {}
    for path in sorted(glob.glob(os.path.join(directory, "*.json"))):
        name = os.path.basename(path)[: -len(".json")]
        if not name.startswith("noise-"):
            traces[name] = load(path)
    means(traces)
    for share in (5, 10, 20, 1):
        summary(traces, share)
    base_times(traces)
    noise_table(directory)
    for name, runs in traces.items():
        main_table(name, runs)
        learned_table(runs)


if __name__ == "__main__":
    main()
