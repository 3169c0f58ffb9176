#!/usr/bin/env python3
"""The tables of erp.md: simulates what erp.sh recorded, and prints them.

    erp.py TRACES OUT THERMOCLINE STREAMS...
"""

import sys

from sim import Runs, percent, table

POLICIES = ["lru", "arc", "tac", "tac:paper", "priority", "value"]
SHARES = [4, 8, 12, 16, 20, 24, 30]
PAPER = {(1, 24): "3", (4, 24): "4.5", (8, 24): "5.3", (8, 30): "12"}
BRIDGES = {(): "as the tier does", ("--bridge", "0"): "each run of pages read alone"}


def main() -> None:
    traces, out, program, *streams = sys.argv[1:]
    runs = Runs(program, traces, out)
    print(f"PostgreSQL {runs.version}, database {runs.bytes / 2**20:.0f} MiB")
    for count in map(int, streams):
        name = f"erp-{count}"
        working = 100 * runs.distinct(name) * 8192 / runs.bytes
        for bridge, what in BRIDGES.items():
            lines, hits = [], []
            for share in SHARES:
                options = ["--base", "hdd", "--flash-device", "iodrive", "--clients", str(count), *bridge,
                           "--flash", f"{runs.pages(share)}p"]
                key = f"{name}-{share}-alone" if bridge else f"{name}-{share}"
                rows = runs.simulate(key, [name], *options, "--policy", ",".join(POLICIES))
                none = rows["lru"]["elapsed_ms"] * rows["lru"]["speedup"]
                lines.append([f"{share} %", f"{none / 1000:.1f}",
                              *(f"{none / rows[p]['elapsed_ms']:.1f}" for p in POLICIES), PAPER.get((count, share), "")])
                hits.append([f"{share} %", *(percent(rows[p]["read_hits"], rows[p]["reads"]) for p in POLICIES)])
            ssd = runs.simulate(f"{name}-ssd", [name], "--base", "ssd", "--clients", str(count), "--flash", "1p",
                                "--policy", "lru")["lru"]
            print(f"\n### {count} streams, working set {working:.0f} % of the database; {what}: times disk only\n")
            print(table(["flash", "disk only, s", *POLICIES, "paper"], lines))
            print(f"\nAll on an SSD: × {none / (ssd['elapsed_ms'] * ssd['speedup']):.1f}.")
        print(f"\n### {count} streams: read hits in %\n")
        print(table(["flash", *POLICIES], hits))


if __name__ == "__main__":
    main()
