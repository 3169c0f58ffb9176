#!/usr/bin/env python3
"""Helpers of live.sh: what is placed on flash, one row of a measurement, and the table.

live.py plan WORK SHARE indexes|opa|copied
live.py row WORK SHARE ROW REPEAT
live.py table WORK
"""

import json
import pathlib
import re
import statistics
import sys

PAGE = 8192
WAYS = {
    "indexes": "indexes moved to flash",
    "opa": "objects moved by access density",
    "copied": "objects copied by access density",
}


def plan(work: pathlib.Path, share: str, way: str) -> None:
    """Files that exist, in the advice's order, as long as they fit: files may be longer than the
    pages of them that the trace has."""
    placements = json.loads((work / f"placements.{share}.json").read_text())
    chosen = next(one for one in placements if one["name"] == WAYS[way])["objects"]
    left = json.loads((work / f"slots.{share}").read_text())
    for file in chosen:
        path = work / "base" / file
        pages = -(-path.stat().st_size // PAGE) if path.is_file() else 0
        if 0 < pages <= left:
            left -= pages
            print(file)


def load(path: pathlib.Path) -> dict:
    return json.loads(path.read_text())


def value(snapshot, path: str):
    for key in path.split("."):
        if isinstance(snapshot, list):
            key = int(key)
            snapshot = snapshot[key] if key < len(snapshot) else None
        else:
            snapshot = (snapshot or {}).get(key)
    return snapshot or 0


def row(work: pathlib.Path, share: str, name: str, repeat: str) -> None:
    before, after = (load(work / f"{which}.json") for which in ("before", "after"))
    report = (work / "report").read_text()
    kinds = re.findall(r"\[Summary\] (\w+) - Takes\(s\): ([\d.]+), Count: (\d+)", report)
    count = sum(int(k[2]) for k in kinds if not k[0].endswith("_ERR"))
    failed = sum(int(k[2]) for k in kinds if k[0].endswith("_ERR"))
    p95 = re.search(r"\[Summary\] NEW_ORDER - .*?95th\(ms\): ([\d.]+)", report)

    def grown(path: str) -> float:
        return value(after, path) - value(before, path)

    reads = {place: grown(f"stats.page_reads.{place}") for place in ("pool", "buffer", "flash", "base")}
    reads["base"] += grown("stats.bypassed_reads")
    total = sum(reads.values()) or 1
    span = grown("stats.uptime_s")
    print(json.dumps({
        "share": int(share),
        "row": name,
        "repeat": int(repeat),
        "tps": count / span,
        "failed": failed,
        "p95_ms": float(p95[1]) if p95 else None,
        "base_reads": 100 * reads["base"] / total,
        "base_busy": 100 * grown("devices.0.busy_s") / span,
        "base_writes_s": grown("devices.0.writes.count") / span,
        "pinned": value(after, "stats.tier.pinned"),
    }))


def table(work: pathlib.Path) -> None:
    rows = [json.loads(line) for line in (work / "rows.jsonl").read_text().splitlines()]
    cells: dict[tuple, list] = {}
    for one in rows:
        cells.setdefault((one["share"], one["row"]), []).append(one)
    alone = statistics.median(one["tps"] for one in cells[(0, "none")])
    print("| flash | row | transactions/s | range | × none | new order p95, ms | reads from base | base busy | base writes/s |")
    print("|---:|---|---:|---|---:|---:|---:|---:|---:|")
    for (share, name), many in cells.items():
        def middle(key: str) -> float:
            return statistics.median(one[key] or 0 for one in many)

        tps = sorted(one["tps"] for one in many)
        print(
            f"| {share} % | {name} | {middle('tps'):.1f} | {tps[0]:.1f}–{tps[-1]:.1f} | {middle('tps') / alone:.1f} "
            f"| {middle('p95_ms'):,.0f} | {middle('base_reads'):.0f} % | {middle('base_busy'):.0f} % "
            f"| {middle('base_writes_s'):.0f} |"
        )


def main() -> None:
    what, work, *rest = sys.argv[1:]
    {"plan": plan, "row": row, "table": table}[what](pathlib.Path(work), *rest)


if __name__ == "__main__":
    main()
