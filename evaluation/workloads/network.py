"""What network.sh measured: a row of a measurement, the seconds of a mount, a row of a loss, the page.

    network.py row WORKLOAD CONFIGURATION REPEAT DIRECTORY
    network.py watch STATS.json
    network.py loss REPEAT CLIENTS DIRECTORY
    network.py page DIRECTORY VERSION SETTINGS REQUESTS RATE
"""

import datetime
import glob
import json
import os
import platform
import re
import statistics
import sys
import time


def grown(before, after, *path):
    def value(snapshot):
        for key in path:
            snapshot = snapshot[key]
        return snapshot

    return value(after) - value(before)


def row(workload, configuration, repeat, work):
    before, after = (json.load(open(f"{work}/{name}.json")) for name in ("before", "after"))
    report = open(f"{work}/report").read()
    if workload == "tpcc":
        kinds = re.findall(
            r"\[Summary\] (\w+) - Takes\(s\): ([\d.]+), Count: (\d+), .*?99th\(ms\): ([\d.]+)", report
        )
        kinds = [k for k in kinds if not k[0].endswith("_ERR")]
        per_second = sum(int(k[2]) for k in kinds) / max(float(k[1]) for k in kinds)
        p99 = next(float(k[3]) for k in kinds if k[0] == "NEW_ORDER")
    elif workload == "tpch":
        lines = [line.split() for line in report.splitlines()]
        queries = sorted(float(to) - float(since) for of, _, since, to in lines if of != "refresh")
        whole = max(float(line[3]) for line in lines) - min(float(line[2]) for line in lines)
        per_second = len(queries) / whole
        p99 = queries[int((len(queries) - 1) * 0.99)] * 1000
    else:
        per_second = float(re.search(r"^tps = ([\d.]+)", report, re.M)[1])
        times = sorted(int(line.split()[2]) for line in open(f"{work}/latency"))
        p99 = times[int((len(times) - 1) * 0.99)] / 1000
    span = grown(before, after, "stats", "uptime_s")
    requests = {
        kind: grown(before, after, "devices", 0, kind, "count") for kind in ("reads", "writes", "syncs")
    }
    moved = sum(grown(before, after, "devices", 0, kind, "bytes") for kind in ("reads", "writes"))
    pages = {place: grown(before, after, "stats", "page_reads", place) for place in ("buffer", "flash", "base")}
    all_pages = sum(pages.values())
    print(
        json.dumps(
            {
                "workload": workload,
                "configuration": configuration,
                "repeat": int(repeat),
                "tps": per_second,
                "p99": p99,
                "requests": sum(requests.values()) / span,
                "rate": moved / span,
                "each": sum(requests.values()) / (per_second * span),
                "reads": requests["reads"] / (per_second * span),
                "off": (after["stats"]["tier"] or {}).get("off"),
                "hits": (pages["buffer"] + pages["flash"]) / all_pages if all_pages else 0.0,
            }
        )
    )


def watch(path):
    while True:
        try:
            report = json.load(open(path))
        except (OSError, ValueError):
            return
        reads = report["stats"]["page_reads"]
        line = {
            "at": time.time(),
            "all": sum(reads.values()),
            "base": reads["base"],
            "resident": (report["stats"]["tier"] or {}).get("resident", 0),
            "warm": report["warm"]["state"],
            "came": report["warm"]["came"],
            "requests": report["warm"]["requests"],
            "bytes": report["warm"]["bytes"],
        }
        print(json.dumps(line), flush=True)
        time.sleep(1)


SPAN = 3  # seconds that one figure is the mean of: single ones scatter


def until(values, wanted):
    """The second after which the mean of SPAN of them first reaches what is wanted; None: never."""
    for at in range(len(values) - SPAN + 1):
        if statistics.mean(values[at : at + SPAN]) >= wanted:
            return at + 1
    return None


def loss(repeat, clients, work):
    found = {"repeat": int(repeat), "clients": int(clients)}
    for way in ("before", "cold", "warm-from"):
        report = open(f"{work}/{way}.report").read()
        tps = [float(t) for t in re.findall(r"^progress: [\d.]+ s, ([\d.]+) tps", report, re.M)]
        lines = [json.loads(line) for line in open(f"{work}/{way}.seconds")]
        hits = []
        for a, b in zip(lines, lines[1:]):
            reads = b["all"] - a["all"]
            hits.append((reads - b["base"] + a["base"]) / reads if reads else 0.0)
        ended = [n for n, line in enumerate(lines) if line["warm"] not in ("reading", "none")]
        found[way] = {
            "tps": tps,
            "hits": hits,
            "ended": ended[0] if ended else None,
            "state": lines[-1]["warm"],
            "came": lines[-1]["came"],
            "requests": lines[-1]["requests"],
            "bytes": lines[-1]["bytes"],
            "resident": lines[-1]["resident"],
        }
    steady = 10
    found["tps"] = statistics.mean(found["before"]["tps"][-steady:])
    found["hit"] = statistics.mean(found["before"]["hits"][-steady:])
    for way in ("cold", "warm-from"):
        one = found[way]
        one["tps_after"] = until(one["tps"], 0.9 * found["tps"])
        one["hits_after"] = until(one["hits"], 0.9 * found["hit"])
        # Transactions that the loss cost in the first 30 s, in seconds of the rate before.
        one["lost"] = sum(1 - t / found["tps"] for t in one["tps"][:30])
    print(json.dumps(found))


NAMES = {"base": "volume alone", "ahead": "volume alone, read ahead", "through": "tier, write-through", "back": "tier, write-back"}
WORKLOADS = {"select": "pgbench -S", "tpcb": "pgbench (TPC-B)", "tpcc": "TPC-C", "tpch": "TPC-H"}


def spread(values, form="{:,.0f}"):
    values = list(values)
    if any(value is None for value in values):
        known = [form.format(value) for value in values if value is not None]
        return ", ".join(known + ["not reached"] * sum(value is None for value in values))
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{form.format(middle)} ({form.format(low)}–{form.format(high)})"


def main_table(rows):
    print(
        "| workload | configuration | transactions/s | × alone | p99 ms | requests to the volume/s "
        "| requests/transaction | saved | hits |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for workload, title in WORKLOADS.items():
        of = [r for r in rows if r["workload"] == workload]
        alone = {r["repeat"]: r for r in of if r["configuration"] == "base"}
        for configuration, name in NAMES.items():
            one = [r for r in of if r["configuration"] == configuration]
            if not one:
                continue
            gain = [r["tps"] / alone[r["repeat"]]["tps"] for r in one if r["repeat"] in alone]
            saved = [1 - r["each"] / alone[r["repeat"]]["each"] for r in one if r["repeat"] in alone]
            # A query of TPC-H takes seconds and thousands of requests.
            form, fine, coarse = ("{:.2f}", "{:,.0f}", "{:,.0f}") if workload == "tpch" else ("{:,.0f}", "{:,.1f}", "{:.2f}")
            times = spread((r["p99"] for r in one), fine)
            print(
                f"| {title} | {name} | {spread((r['tps'] for r in one), form)} | {spread(gain, '{:.2f}')} | {times} "
                f"| {spread(r['requests'] for r in one)} | {spread((r['each'] for r in one), coarse)} "
                f"| {'–' if configuration == 'base' else spread(saved, '{:.0%}')} "
                f"| {'–' if configuration == 'base' else spread((r['hits'] for r in one), '{:.0%}')} |"
            )


WAYS = (("cold", "cold"), ("warm-from", "`--warm-from`"))


def loss_table(loads):
    print(
        "| clients | before: transactions/s | hits | after the loss | 90 % of the transactions/s after s "
        "| 90 % of the hits after s | cost of the first 30 s, s | warming: pages | requests | MiB read | ended after s |"
    )
    print("|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for clients, losses in loads:
        before = spread(f["tps"] for f in losses), spread((f["hit"] for f in losses), "{:.0%}")
        for way, name in WAYS:
            one = [found[way] for found in losses]
            warmed = way == "warm-from"
            cells = [
                spread(o["tps_after"] for o in one),
                spread(o["hits_after"] for o in one),
                spread((o["lost"] for o in one), "{:.1f}"),
                spread(o["came"] for o in one) if warmed else "–",
                spread(o["requests"] for o in one) if warmed else "–",
                spread(o["bytes"] / 2**20 for o in one) if warmed else "–",
                spread(o["ended"] for o in one) if warmed else "–",
            ]
            print(f"| {clients} | {before[0]} | {before[1]} | {name} | {' | '.join(cells)} |")


def curve(loads):
    moments = [0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 25, 29]
    print("| clients | second of the load |" + "".join(f" {m} |" for m in moments))
    print("|---:|---|" + "---:|" * len(moments))
    for clients, losses in loads:
        for way, name in WAYS:
            cells = []
            for at in moments:
                values = [f[way]["tps"][at] / f["tps"] for f in losses if at < len(f[way]["tps"])]
                cells.append(f"{100 * statistics.median(values):.0f}" if values else "–")
            print(f"| {clients} | {name} | {' | '.join(cells)} |")


def page(kept, version, settings, requests, rate):
    rows = [json.load(open(path)) for path in sorted(glob.glob(f"{kept}/*-*-*.json"))]
    losses = [json.load(open(path)) for path in sorted(glob.glob(f"{kept}/loss-*-[0-9].json"))]
    rows = [r for r in rows if "workload" in r]

    def text(name, default="?"):
        path = f"{kept}/{name}"
        return open(path).read().strip() if os.path.exists(path) else default

    def size(name):
        return int(text(f"{name}.bytes", "0")) >> 20

    day = datetime.datetime.now(datetime.timezone.utc).date()
    print("# Today's base: PostgreSQL on a network volume, with and without a tier\n")
    print(
        f"{day}. {version}, PostgreSQL {text('version')}, Linux {platform.release().split('-')[0]}, "
        f"{os.cpu_count()} cores, a busy machine. The volume is **emulated**: 1 ms, {rate}/s, {requests} requests/s, "
        "over a directory of the machine's disk; flash is that disk.\n"
    )
    print(f"Command: `{settings} evaluation/workloads/network.sh`\n")
    print(
        f"Databases: pgbench {size('pgbench')} MiB, TPC-C {size('tpcc')} MiB, TPC-H {size('tpch')} MiB, all of their files on the volume, the log "
        "too. Medians and (ranges); *saved* is of the requests per transaction that the volume alone gets.\n"
    )
    main_table(rows)
    alone = [r for r in rows if r["configuration"] == "base" and r["workload"] == "select"]
    if alone:
        most = statistics.median(r["requests"] for r in alone)
        share = most / int(requests)
        print(
            f"\nThe emulation: the volume alone served {most:,.0f} requests/s under `pgbench -S`, "
            f"{share:.0%} of the limit of the model.\n"
        )
    if losses:
        print("## After the loss of flash\n")
        loads = [(c, [f for f in losses if f["clients"] == c]) for c in sorted({f["clients"] for f in losses}, reverse=True)]
        loss_table(loads)
        print("\nTransactions/s in per cent of those before the loss, medians:\n")
        curve(loads)
        print("\n<!-- what follows is written by hand -->")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
