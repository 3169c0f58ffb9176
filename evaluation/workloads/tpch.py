#!/usr/bin/env python3
"""The tables of tpch.md: simulates what tpch.sh recorded, and prints them.

    tpch.py TRACES OUT THERMOCLINE BUFFERS

BUFFERS: PostgreSQL's share of the memory, in per cent of the database.
"""

import sys

from sim import Runs, as_blocks, percent, split, table, without_plans

TIERS = ["lru", "arc", "tac", "priority", "value"]
COMBINATIONS = ",".join(["lru+none:back"] + [f"lru+{tier}" for tier in TIERS])
# Data, flash and memory of H's two machines, as shares of the data in per cent.
RATIOS = {"46:32:8": (100 * 32 / 46, 100 * 8 / 46), "16:4:2": (25.0, 12.5)}
DISK = ("--base", "hdd-15k", "--flash-device", "ssd", "--base-filled")
H = {  # seconds of H's text; ratios of its table 8 and 9
    "Q1": "LRU 1.16 × disk", "Q19": "LRU 1.25 × disk", "Q9": "SSD 7.2 × disk", "Q21": "SSD 3.9 × disk",
    "Q18": "SSD 1.45 × disk",
}


class Tpch:
    def __init__(self, traces: str, out: str, program: str, buffers: str) -> None:
        self.sets = [Runs(program, f"{traces}/{part}", f"{out}/{part}") for part in ("alone", "together")]
        self.runs = self.sets[0]
        self.buffers = float(buffers)

    def of(self, trace: str) -> None:
        """Turns to the database that the trace was recorded below."""
        self.runs = self.sets[trace == "throughput"]

    def sizes(self, ratio: str) -> tuple[int, int]:
        flash, memory = RATIOS[ratio]
        return self.runs.pages(flash), self.runs.pages(memory - self.buffers)

    def timed(self, trace: str, ratio: str, clients: int, *bridge: str) -> dict[str, dict]:
        """Results of one trace for all combinations, and all of it on an SSD."""
        tier, pool = self.sizes(ratio)
        name = f"{trace}-{ratio.replace(':', '-')}"
        key = f"{name}-alone" if bridge else name
        rest = ("--clients", str(clients))
        rows = self.runs.joint(key, trace, tier, pool, COMBINATIONS, *DISK, *rest, *bridge)
        ssd = self.runs.joint(f"{name}-ssd", trace, tier, pool, "lru+none:back", "--base", "ssd", *rest)
        return rows | {"ssd": ssd["lru+none:back"]}

    def line(self, name: str, rows: dict[str, dict], note: str) -> list[object]:
        none = rows["lru+none:back"]["elapsed_ms"]
        order = ["lru+none:back", *(f"lru+{tier}" for tier in TIERS), "ssd"]
        seconds = [f"{rows[c]['elapsed_ms'] / 1000:.1f}" if c in rows else "–" for c in order]
        return [name, *seconds, f"{rows['lru+priority']['elapsed_ms'] / none:.2f}", note]

    def single(self, ratio: str, blocks: bool) -> None:
        """Every query alone: as the tier does it, or as H's storage server would."""
        lines, total = [], {}
        for query in range(1, 23):
            name = f"Q{query}"
            trace = f"single-{name}"
            if blocks:
                directory = self.runs.traces
                as_blocks(directory / f"{trace}.parquet", directory / f"{trace}-blocks.parquet")
                rows = self.timed(f"{trace}-blocks", ratio, 1)
            else:
                rows = self.timed(trace, ratio, 1)
            lines.append(self.line(name, rows, H.get(name, "")))
            for key, row in rows.items():
                before = total.get(key, {"elapsed_ms": 0})["elapsed_ms"]
                total[key] = {"elapsed_ms": before + row["elapsed_ms"]}
        lines.append(self.line("**all**", total, ""))
        what = "as on blocks" if blocks else "as the tier does it"
        print(f"\n### Each query alone, from empty caches, {ratio}, {what}: I/O time in seconds\n")
        print(table(["query", "disk only", *TIERS, "all SSD", "priority of disk", "paper"], lines))

    def long(self) -> None:
        """The power and the throughput test, as the tier does it and as H's storage server would."""
        lines = []
        for test, ratio, clients, paper in (
            ("power", "46:32:8", 1, "disk 86,009 s, hStorage 39,132 s (0.45), SSD 23,953 s"),
            ("throughput", "16:4:2", 4, "disk 13, LRU 28, hStorage 43, SSD 114 (queries): 0.30 of disk, 0.65 of LRU"),
        ):
            self.of(test)
            directory = self.runs.traces
            as_blocks(directory / f"{test}.parquet", directory / f"{test}-blocks.parquet")
            rows = self.timed(test, ratio, clients)
            lines.append(self.line(f"{test}, {ratio}, as the tier does it", rows, paper))
            rows = self.timed(test, ratio, clients, "--bridge", "0")
            lines.append(self.line(f"{test}, {ratio}, each run of pages read alone", rows, paper))
            rows = self.timed(f"{test}-blocks", ratio, clients)
            lines.append(self.line(f"{test}, {ratio}, as on blocks", rows, paper))
        print("\n### The power test, and the throughput test of 3 + 1 streams: I/O time in seconds\n")
        print(table(["test", "disk only", *TIERS, "all SSD", "priority of disk", "paper"], lines))

    def classes(self, trace: str, ratio: str, classes: dict[str, list[str]], paper: dict[str, str]) -> None:
        """Hits of each class of objects in pool and tier, and in the tier alone."""
        directory = self.runs.traces
        found = split(directory / f"{trace}.parquet", classes, directory)
        tier, pool = self.sizes(ratio)
        parts = [f"{trace}.{name}" for name in found]
        rows = self.runs.simulate(f"classes-{trace}", parts, "--flash", f"{tier}p", "--pool", f"{pool}p",
                                  "--policy", ",".join(TIERS))
        lines = []
        for index, name in enumerate(found):
            # A single class is no client of several, so its counts are the run's.
            counts = [(rows[policy]["by_client"] or [rows[policy]])[index] for policy in TIERS]
            lines.append([name, counts[0]["reads"],
                          *(percent(c["read_hits"], c["reads"]) for c in counts), paper.get(name, "")])
        print(f"\n### {trace.replace('single-', '')}, {ratio}: read hits in %, of pool and tier\n")
        print(table(["reads of", "pages read", *TIERS, "paper, of the tier"], lines))

    def hints(self) -> None:
        policies = ["priority", "clic", "dp-clic", "value", "lru", "tac"]
        lines = []
        for trace, ratio in (("throughput", "16:4:2"),):
            self.of(trace)
            tier, pool = self.sizes(ratio)
            source = self.runs.traces / f"{trace}.parquet"
            without_plans(source, self.runs.traces / f"{trace}-plain.parquet")
            for plans, name in (("with", trace), ("without", f"{trace}-plain")):
                rows = self.runs.simulate(f"hints-{name}-{ratio.replace(':', '-')}", [name], "--flash", f"{tier}p", "--pool",
                                          f"{pool}p", "--policy", ",".join(policies), "--base", "hdd-15k")
                lines.append([f"{trace}, {ratio}, {plans}", *(
                    percent(rows[p]["flash_reads"], rows[p]["reads"] - rows[p]["pool_hits"]) for p in policies)])
        print("\n### What plan hints are worth: hits of the tier, in % of the reads that the pool left\n")
        print(table(["trace, hints of plans", *policies], lines))


def main() -> None:
    study = Tpch(*sys.argv[1:])
    for runs, what in zip(study.sets, ("single queries and power test", "throughput test")):
        print(f"PostgreSQL {runs.version}, {what}: database {runs.bytes / 2**20:.0f} MiB")
    for blocks in (False, True):
        study.single("16:4:2", blocks)
    study.classes("single-Q18", "16:4:2", {"temporary files": [":temporary"]},
                  {"temporary files": "hStorage 100, LRU 1.8"})
    tables = {
        "orders and its index": ["orders", "o_orderkey"],
        "supplier and its index": ["supplier", "s_suppkey"],
        "lineitem's indexes": ["l_orderkey", "l_partkey"], "lineitem": ["lineitem"],
        "temporary files": [":temporary"],
    }
    study.classes("single-Q9", "16:4:2", tables,
                  {"supplier and its index": "91", "orders and its index": "89"})
    study.classes("single-Q21", "16:4:2", tables, {
        "orders and its index": "hStorage 90.3, LRU 90.2",
        "lineitem": "at random: hStorage 40.1, LRU 82.3; in order 0.1 and 50.9"})
    study.long()
    study.hints()


if __name__ == "__main__":
    main()
