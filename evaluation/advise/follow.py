#!/usr/bin/env python3
"""Helpers of follow.sh: the command of the first line of advice, and one row of the table.

follow.py command WORK
follow.py row WORK WORKLOAD REPEAT
"""

import json
import pathlib
import re
import sys


def first(work: pathlib.Path) -> dict:
    lines = json.loads((work / "advice.json").read_text())
    if not lines:
        sys.exit("nothing was advised")
    return lines[0]


def transactions(report: str, workload: str) -> int:
    if workload == "pgbench":
        return int(re.search(r"transactions actually processed: (\d+)", report)[1])
    kinds = re.findall(r"\[Summary\] (\w+) - Takes\(s\): [\d.]+, Count: (\d+)", report)
    return sum(int(count) for kind, count in kinds if not kind.endswith("_ERR"))


def measured(work: pathlib.Path, when: str, workload: str) -> tuple[float, float]:
    """Transactions a second, and seconds of base for each."""
    begin, end = (json.loads((work / f"{when}.{at}.json").read_text()) for at in (0, 1))
    count = transactions((work / when).read_text(), workload)
    span = end["stats"]["uptime_s"] - begin["stats"]["uptime_s"]
    busy = end["devices"][0]["busy_s"] - begin["devices"][0]["busy_s"]
    return count / span, busy / count


def row(work: pathlib.Path, workload: str, repeat: str) -> None:
    line = first(work)
    before, after = (measured(work, when, workload) for when in ("before", "after"))
    gain = line["gain"]
    observed = 100 * (1 - after[1] / before[1])
    within = abs(observed - gain["percent"]) <= gain["plus_minus"]
    command = line["command"].splitlines()[0].split()
    what = " ".join([line["kind"], command[-1]])
    print(
        f"| {workload} | {repeat} | {what} | {gain['percent']:.1f} ± {gain['plus_minus']:.1f} % | {observed:.1f} % "
        f"| {'yes' if within else '**no**'} | {before[0]:.1f} | {after[0]:.1f} | {after[0] / before[0]:.2f}× |"
    )


def main() -> None:
    what, work, *rest = sys.argv[1:]
    work = pathlib.Path(work)
    if what == "command":
        print(first(work)["command"])
    else:
        row(work, *rest)


if __name__ == "__main__":
    main()
