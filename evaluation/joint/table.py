#!/usr/bin/env python3
"""The tables of results/joint.md from the JSON files that run.sh leaves.

    table.py [OUT]
"""

import json
import pathlib
import statistics
import sys

COSTS = [
    ("base util %", "base_utilisation", 100, 0),
    ("base ms/tx", "base_ms_per_transaction", 1, 1),
    ("flash util %", "flash_utilisation", 100, 0),
    ("flash ms/tx", "flash_ms_per_transaction", 1, 1),
    ("total ms/tx", "ms_per_transaction", 1, 1),
    ("pool misses %", "miss_rate", 100, 1),
    ("on flash %", "miss_rate_on_flash", 100, 1),
    ("off flash %", "miss_rate_off_flash", 100, 1),
    ("tx/min", "transactions_per_minute", 1, 0),
]
PAGES = [
    ("reads on flash %", "reads_on_flash", 100, 1),
    ("read from base", "base_reads", 1, 0),
    ("read from flash", "flash_reads", 1, 0),
    ("to flash", "flash_writes", 1, 0),
    ("to base", "base_writes", 1, 0),
    ("destaged", "destage_writes", 1, 0),
    ("in I/Os", "destage_ios", 1, 0),
]


def cell(value: float | None, factor: float, digits: int) -> str:
    return "–" if value is None else f"{value * factor:,.{digits}f}"


def table(runs: list[dict], columns: list[tuple], best: bool = False) -> str:
    names = ["combination", "pool", *(name for name, *_ in columns)]
    lines = ["| " + " | ".join(names) + " |", "|---|" + "---:|" * (len(names) - 1)]
    least = {}
    for run in runs:
        cost = run["ms_per_transaction"]
        least[run["pool"]] = min(cost, least.get(run["pool"], cost))
    for run in runs:
        cells = [cell(run[field], factor, digits) for _, field, factor, digits in columns]
        if best and run["ms_per_transaction"] == least[run["pool"]]:
            cells[4] = f"**{cells[4]}**"
        lines.append(f"| {run['combination']} | {run['pool']:.0%} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def zones(runs: list[dict]) -> str:
    lines = [
        "| combination | kept by | times written | bytes | bytes per data byte |",
        "|---|---|---:|---:|---:|",
    ]
    for run in runs:
        row = [run["commits"], run["journal_bytes"] + run["checkpoint_bytes"]]
        share = f"{run['map_bytes_per_data_byte']:.5f}"
        lines.append(f"| {run['combination']} | journal | {row[0]:,} | {row[1]:,} | {share} |")
        for zone in run["zones"]:
            lines.append(
                f"| | zone of {zone['percent']:g} % | {zone['checkpoints']:,} |"
                f" {zone['bytes']:,} | {zone['per_data_byte']:.5f} |"
            )
    return "\n".join(lines) + "\n"


def spread(values: list[float], digits: int) -> str:
    """Median and range, or the value where all are the same."""
    middle, low, high = statistics.median(values), min(values), max(values)
    one = f"{middle:,.{digits}f}"
    return one if low == high else f"{one} ({low:,.{digits}f}–{high:,.{digits}f})"


def beside(seeds: list[list[dict]], rivals: list[dict]) -> str:
    """Device time of `value`, of several seeds, beside GD2L+CAC and LRU+LRU2, and how many times as
    long the better of these takes as GD2L+`value`."""
    names = ["gd2l+cac", "lru+lc", "gd2l+value", "lru+value"]
    cost: dict[tuple, list[float]] = {}
    for run in rivals + [run for runs in seeds for run in runs]:
        key = (run["database"], run["pool"], run["combination"])
        cost.setdefault(key, []).append(run["ms_per_transaction"])
    lines = ["| database | pool | " + " | ".join(names) + " | better of two / gd2l+value |"]
    lines.append("|---:|---:|" + "---:|" * (len(names) + 1))
    sizes = sorted({key[:2] for key in cost}, key=lambda size: (-size[0], size[1]))
    for database, pool in sizes:
        row = [cost.get((database, pool, name), []) for name in names]
        if not all(row):
            continue
        best = min(row[0][0], row[1][0])
        cells = [spread(values, 1) for values in row]
        cells.append(spread([best / value for value in row[2]], 2))
        lines.append(f"| {database:g} × | {pool:.0%} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def load(out: pathlib.Path, name: str) -> list[dict]:
    path = out / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else []


def main() -> None:
    here = pathlib.Path(__file__).parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "../../target/joint"
    for capture in ("mariadb", "postgres"):
        runs = load(out, capture)
        for database in sorted({run["database"] for run in runs}, reverse=True):
            of_size = [run for run in runs if run["database"] == database]
            tier = max(run["tier_pages"] for run in of_size)
            print(f"\n### {capture}, database {database:g} × the tier ({tier:,} pages)\n")
            print(table(of_size, COSTS, best=True))
            print(table(of_size, PAGES))
        for name in ("more", "clients", "lazy"):
            if runs := load(out, f"{capture}-{name}"):
                print(f"\n### {capture}: {name}\n")
                print(table(runs, COSTS, best=True))
                print(table(runs, PAGES))
        if seeds := [json.loads(path.read_text()) for path in sorted(out.glob(f"{capture}-value-*.json"))]:
            print(f"\n### {capture}: value beside CAC, median and range of {len(seeds)} seeds\n")
            print(beside(seeds, load(out, capture)))
        if runs := load(out, f"{capture}-zone"):
            print(f"\n### {capture}: zones\n")
            print(zones(runs))


if __name__ == "__main__":
    main()
