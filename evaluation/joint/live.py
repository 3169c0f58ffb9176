"""One row of live.sh's table: what a measurement's report and the two status snapshots say."""

import json
import re
import sys

workload, configuration, work = sys.argv[1:]
before, after = (json.load(open(f"{work}/{name}.json")) for name in ("before", "after"))
report = open(f"{work}/report").read()


def value(snapshot, path):
    for key in path.split("."):
        if isinstance(snapshot, list):
            key = int(key)
            snapshot = snapshot[key] if key < len(snapshot) else None
        else:
            snapshot = (snapshot or {}).get(key)
    return snapshot or 0


def grown(path):
    return value(after, path) - value(before, path)


if workload == "pgbench":
    per_second = float(re.search(r"^tps = ([\d.]+)", report, re.M)[1])
    mean = float(re.search(r"^latency average = ([\d.]+)", report, re.M)[1])
    times = sorted(int(line.split()[2]) for line in open(f"{work}/report.latency"))
    p95 = times[int((len(times) - 1) * 0.95)] / 1000
    orders = None
else:
    kinds = re.findall(
        r"\[Summary\] (\w+) - Takes\(s\): ([\d.]+), Count: (\d+), .*?Avg\(ms\): ([\d.]+).*?95th\(ms\): ([\d.]+)",
        report,
    )
    kinds = [k for k in kinds if not k[0].endswith("_ERR")]
    count = sum(int(k[2]) for k in kinds)
    per_second = count / max(float(k[1]) for k in kinds)
    mean = sum(float(k[3]) * int(k[2]) for k in kinds) / count
    p95 = next(float(k[4]) for k in kinds if k[0] == "NEW_ORDER")
    orders = float(re.search(r"tpmC: ([\d.]+)", report)[1])

span = grown("stats.uptime_s")
transactions = per_second * span
reads = {place: grown(f"stats.page_reads.{place}") for place in ("pool", "buffer", "flash", "base")}
reads["base"] += grown("stats.bypassed_reads")
total = sum(reads.values()) or 1


def cost(device):
    return 1000 * grown(f"devices.{device}.busy_s") / transactions


print(
    f"| {workload} | {configuration} | {per_second:.1f} | {orders and f'{orders:.0f}' or '-'} | {mean:.1f} | {p95:.1f} "
    f"| {100 * reads['pool'] / total:.1f} % | {100 * (reads['flash'] + reads['buffer']) / total:.1f} % "
    f"| {cost(0):.2f} | {cost(1):.2f} | {grown('devices.0.writes.count') / transactions:.2f} "
    f"| {100 * grown('devices.0.busy_s') / span:.0f} % | {value(after, 'stats.tier.dirty') + value(after, 'stats.pool.dirty')} |"
)
