#!/usr/bin/env python3
"""What clients-live.sh measured: a run as one line of JSON, and the live tables of
evaluation/results/clients.md.

    clients_live.py row POLICY shared|parts REPEAT DIRECTORY
    clients_live.py table DIRECTORY
"""

import json
import pathlib
import re
import statistics
import sys

DATABASES = ["zipf", "uniform", "scan"]
TIERS = {"parts": "a third each", "shared": "shared"}


def row(policy: str, tier: str, repeat: str, work: pathlib.Path) -> dict:
    found: dict = {"policy": policy, "tier": tier, "repeat": int(repeat)}
    requests = resident = 0
    for after_path in work.glob("after-*.json"):
        after = json.loads(after_path.read_text())
        before = json.loads((work / after_path.name.replace("after", "before")).read_text())
        base = [
            next(of for of in report["devices"] if of["role"] == "base")
            for report in (before, after)
        ]
        span = after["stats"]["uptime_s"] - before["stats"]["uptime_s"]
        requests += (base[1]["reads"]["count"] - base[0]["reads"]["count"]) / span
        earlier = {of["name"]: of for of in before["stats"]["clients"]}
        for of in after["stats"]["clients"]:
            if of["name"] not in DATABASES:
                continue
            was = earlier[of["name"]]
            report = (work / f"report-{of['name']}").read_text()
            found[of["name"]] = {
                "tps": float(re.search(r"^tps = ([\d.]+)", report, re.M)[1]),
                "reads": of["reads"] - was["reads"],
                "hits": of["hits"] - was["hits"],
                "resident": of["resident"],
            }
            resident += of["resident"]
    assert set(DATABASES) <= set(found), "every database was served"
    found["requests"], found["resident"] = requests, resident
    return found


def spread(values: list[float], digits: int) -> str:
    low, high = (f"{of(values):,.{digits}f}" for of in (min, max))
    return f"{statistics.median(values):,.{digits}f} ({low}–{high})"


def table(out: pathlib.Path) -> None:
    runs = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    policies = list(dict.fromkeys(run["policy"] for run in runs))
    columns = {
        "Read hits, %": (lambda run, of: 100 * run[of]["hits"] / max(run[of]["reads"], 1), 1),
        "Transactions/s": (lambda run, of: run[of]["tps"], 1),
        "Share of the pages on flash, %": (
            lambda run, of: 100 * run[of]["resident"] / max(run["resident"], 1),
            0,
        ),
    }
    for title, (value, digits) in columns.items():
        last = {"Read hits, %": "all"}.get(title)
        if title.startswith("Trans"):
            last = "requests to the volume/s"
        names = [*DATABASES, *([last] if last else [])]
        print(f"\n{title}:\n\n| policy | tier | {' | '.join(names)} |")
        print("|---|---|" + "---:|" * len(names))
        for policy in policies:
            for tier, said in TIERS.items():
                of = [run for run in runs if (run["policy"], run["tier"]) == (policy, tier)]
                if not of:
                    continue
                cells = [spread([value(run, name) for run in of], digits) for name in DATABASES]
                if last == "all":
                    sums = [[sum(run[n][f] for n in DATABASES) for f in ("hits", "reads")] for run in of]
                    cells.append(spread([100 * hits / reads for hits, reads in sums], digits))
                elif last:
                    cells.append(spread([run["requests"] for run in of], 0))
                print(f"| {policy} | {said} | {' | '.join(cells)} |")


def main() -> None:
    match sys.argv[1:]:
        case ["row", policy, tier, repeat, work]:
            print(json.dumps(row(policy, tier, repeat, pathlib.Path(work))))
        case ["table", out]:
            table(pathlib.Path(out))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
