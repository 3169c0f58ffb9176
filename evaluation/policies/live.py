"""What live.sh measured: a row of a measurement, and the page.

live.py row WORKLOAD POLICY REPEAT DIRECTORY
live.py page DIRECTORY VERSION SETTINGS
"""

import datetime
import glob
import json
import os
import platform
import re
import statistics
import sys

TITLES = {
    "scattered": "pgbench, scattered",
    "clustered": "pgbench, clustered",
    "tpcc": "TPC-C, write-through",
    "tpcc-back": "TPC-C, write-back",
    "tpch": "TPC-H",
}
DEFAULT = "auto"


def value(snapshot, path):
    for key in path.split("."):
        if isinstance(snapshot, list):
            snapshot = snapshot[int(key)] if int(key) < len(snapshot) else None
        else:
            snapshot = (snapshot or {}).get(key)
    return snapshot or 0


def percentile(times, share):
    times = sorted(times)
    return times[int((len(times) - 1) * share)]


def told(workload, work):
    """What the client says: transactions/s, the 99th percentile in ms, seconds, failures."""
    report = open(f"{work}/report").read()
    if workload == "tpch":
        times = [int(line.split()[1]) / 1e6 for line in report.splitlines()]
        return len(times) / sum(times), max(times) * 1000, sum(times), 0
    if workload.startswith("tpcc"):
        kinds = re.findall(
            r"\[Summary\] (\w+) - Takes\(s\): ([\d.]+), Count: (\d+), .*?99th\(ms\): ([\d.]+)", report
        )
        failed = sum(int(k[2]) for k in kinds if k[0].endswith("_ERR"))
        kinds = [k for k in kinds if not k[0].endswith("_ERR")]
        seconds = max(float(k[1]) for k in kinds)
        p99 = next((float(k[3]) for k in kinds if k[0] == "NEW_ORDER"), None)
        return sum(int(k[2]) for k in kinds) / seconds, p99, seconds, failed
    times = [int(line.split()[2]) for line in open(f"{work}/latency")]
    tps = float(re.search(r"^tps = ([\d.]+)", report, re.M)[1])
    return tps, percentile(times, 0.99) / 1000, len(times) / tps, 0


def row(workload, policy, repeat, work):
    before, after = (json.load(open(f"{work}/{name}.json")) for name in ("before", "after"))
    tps, p99, seconds, failed = told(workload, work)

    def grown(path):
        return value(after, path) - value(before, path)

    span = grown("stats.uptime_s")
    pages = {place: grown(f"stats.page_reads.{place}") for place in ("pool", "buffer", "flash", "base")}
    passed = grown("stats.bypassed_reads")
    requests = sum(grown(f"devices.0.{kind}.count") for kind in ("reads", "writes"))
    transactions = tps * seconds
    ticks = [
        [int(n) for n in open(f"{work}/{name}.cpu").read().split()[1:9]] for name in ("before", "after")
    ]
    ticks = [b - a for a, b in zip(*ticks)]
    print(
        json.dumps(
            {
                "workload": workload,
                "policy": policy,
                "repeat": int(repeat),
                "tps": tps,
                "p99": p99,
                "seconds": seconds,
                "failed": failed,
                "hits": 1 - pages["base"] / sum(pages.values()) if sum(pages.values()) else 0.0,
                "each": requests / transactions,
                "reads": grown("devices.0.reads.count") / transactions,
                "writes": grown("devices.0.writes.count") / transactions,
                "base_ms": 1000 * grown("devices.0.busy_s") / transactions,
                "flash": grown("devices.1.writes.bytes"),
                "flash_all": value(after, "devices.1.writes.bytes"),
                "admitted": grown("stats.tier.admissions"),
                "base_busy": grown("devices.0.busy_s") / span,
                "flash_busy": grown("devices.1.busy_s") / span,
                # Of all processors, whoever used them: not idle, not waiting for a device.
                "cpu": 1 - (ticks[3] + ticks[4]) / sum(ticks),
                "passed": passed,
                "resident": value(after, "stats.tier.resident"),
                "capacity": value(after, "stats.tier.capacity"),
                "uptime": value(after, "stats.uptime_s"),
                "learned": (after.get("stats") or {}).get("learned"),
            }
        )
    )


def spread(values, form="{:,.0f}"):
    values = [v for v in values if v is not None]
    if not values:
        return "–"
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{form.format(middle)} ({form.format(low)}–{form.format(high)})"


def form_of(values):
    return "{:,.0f}" if statistics.median(values) >= 100 else "{:.1f}"


def table(rows, workload):
    of = [r for r in rows if r["workload"] == workload]
    policies = sorted({r["policy"] for r in of}, key=lambda p: (p != "none", p != DEFAULT, p))
    queries = workload == "tpch"
    print(f"### {TITLES[workload]}\n")
    print(
        f"| policy | repeats | {'seconds of the stream' if queries else 'transactions/s'} | × {DEFAULT}, by repeat "
        f"| {'longest query, s' if queries else 'p99 ms'} | read hits, % | base requests a "
        f"{'query' if queries else 'transaction'} | saved at base, % | MiB written to flash | base busy, % | processors busy, % |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    default = {r["repeat"]: r for r in of if r["policy"] == DEFAULT}
    alone = {r["repeat"]: r for r in of if r["policy"] == "none"}
    for policy in policies:
        one = [r for r in of if r["policy"] == policy]
        key, p99 = ("seconds", 1000) if queries else ("tps", 1)
        ratio = [r["tps"] / default[r["repeat"]]["tps"] for r in one if r["repeat"] in default]
        saved = [100 * (1 - r["each"] / alone[r["repeat"]]["each"]) for r in one if r["repeat"] in alone]
        tier = policy != "none"
        name = f"**{policy}**" if policy == DEFAULT else policy if tier else "base alone"
        cells = [
            name,
            str(len(one)),
            spread([r[key] for r in one], form_of([r[key] for r in one])),
            spread(ratio, "{:.2f}"),
            spread([r["p99"] / p99 for r in one if r["p99"] is not None], "{:,.1f}"),
            spread([100 * r["hits"] for r in one], "{:.1f}") if tier else "–",
            spread([r["each"] for r in one], form_of([r["each"] for r in one]) if queries else "{:.2f}"),
            spread(saved, "{:.0f}") if tier else "–",
            spread([r["flash"] / 2**20 for r in one], "{:.1f}") if tier else "–",
            spread([100 * r["base_busy"] for r in one], "{:.0f}"),
            spread([100 * r["cpu"] for r in one], "{:.0f}"),
        ]
        print(f"| {' | '.join(cells)} |")
    print()


def page(kept, version, settings):
    rows = [json.load(open(path)) for path in sorted(glob.glob(f"{kept}/*-*-*.json"))]

    def text(name, default="?"):
        path = f"{kept}/{name}"
        return open(path).read().strip() if os.path.exists(path) else default

    def size(name):
        return int(text(f"{name}.bytes", "0")) >> 20

    day = datetime.datetime.now(datetime.timezone.utc).date()
    print("# The default policy against others, live\n")
    print(
        f"{day}. {version}, PostgreSQL {text('version')}, Linux {platform.release().split('-')[0]}, "
        f"{os.cpu_count()} cores; how busy they were, by whatever, is the last column. Base is a file system slowed down to an **emulated** "
        "7200-rpm disk; flash and the database's log are the machine's own disk.\n"
    )
    print(f"Command: `{settings} evaluation/policies/live.sh`\n")
    print(
        f"Databases: pgbench {size('pgbench')} MiB, TPC-C {size('tpcc')} MiB, TPC-H {size('tpch')} MiB. "
        "Medians and (ranges).\n"
    )
    for workload in TITLES:
        if any(r["workload"] == workload for r in rows):
            table(rows, workload)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
