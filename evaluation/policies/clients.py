#!/usr/bin/env python3
"""A table of evaluation/results/clients.md from the JSON files that clients.sh leaves.

    clients.py OUTPUT_DIRECTORY NAME CAPTURE...
"""

import json
import pathlib
import sys


def load(path: pathlib.Path) -> dict[str, dict]:
    return {run["policy"]: run for run in json.loads(path.read_text())}


def rate(hits: int, reads: int) -> str:
    return f"{100 * hits / reads:.1f}" if reads else "–"


def main() -> None:
    out, name, captures = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    parts = [load(out / f"part-{capture}.json") for capture in captures]
    header = ["policy", "tier", *captures, "all", "pages to flash"]
    print(f"\n### {name}\n\n| " + " | ".join(header) + " |")
    print("|---|---|" + "---:|" * (len(captures) + 2))
    for policy in parts[0]:
        alone = [part[policy] for part in parts]
        cells = [rate(run["read_hits"], run["reads"]) for run in alone]
        sums = [sum(run[field] for run in alone) for field in ("read_hits", "reads")]
        written = sum(run["flash_writes"] for run in alone)
        print(f"| {policy} | a third each | {' | '.join(cells)} | {rate(*sums)} | {written:,} |")
        for order, title in (("time", "shared, by time"), ("turns", "shared, in turns, cut")):
            run = load(out / f"{name}-{order}.json")[policy]
            cells = [rate(of["read_hits"], of["reads"]) for of in run["by_client"]]
            total = rate(run["read_hits"], run["reads"])
            print(f"| {policy} | {title} | {' | '.join(cells)} | {total} | "
                  f"{run['flash_writes']:,} |")


if __name__ == "__main__":
    main()
