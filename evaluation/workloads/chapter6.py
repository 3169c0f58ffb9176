#!/usr/bin/env python3
"""Simulates the capture of chapter6.sh and prints the tables of results/chapter6.md.

    chapter6.py PROGRAM CAPTURE_DIRECTORY OUT

CUT=SHARE takes the first SHARE of the capture's time. RATIOS=3,1.5,0.8 says which sizes of the database are
run, in that order, COMBINATIONS=lru+cc,gd2l+cac,... with which policies, POOLS=10,20,40 with which pools, in
per cent of the tier. Every run leaves a JSON
file in OUT and is not run again.
"""

import json
import os
import pathlib
import subprocess
import sys

from finish import new_orders
from sim import table

CALM = ("nice", "-n", os.environ.get("NICENESS", "19"))  # others use this machine too
SIZES = (10, 20, 40)  # the thesis' pools, in per cent of the tier
POOLS = tuple(int(p) for p in os.environ.get("POOLS", "10,20,40").split(","))
COMBINATIONS = ("lru+cc", "gd2l+cc", "gd2l+cac", "lru+lc", "lru+mv-fifo")
# Figures 6.12 to 6.14 and 6.16 to 6.18: total I/O in ms per New Order, and buffer pool misses in %.
PAPER = {
    "3": {"lru+cc": ((99.7, 78.8, 58.4), (6.6, 4.4, 2.4)), "gd2l+cc": ((65.2, 54.0, 42.1), (8.8, 7.4, 4.7)),
          "gd2l+cac": ((48.4, 39.6, 29.3), (7.4, 6.3, 4.8)), "lru+lc": ((58.0, 57.0, 53.2), (6.7, 4.4, 2.4)),
          "lru+mv-fifo": ((110.5, 98.1, 66.6), (6.6, 4.4, 2.5))},
    "1.5": {"lru+cc": ((16.5, 9.7, 7.0), (4.2, 2.7, 1.3)), "gd2l+cc": ((10.4, 6.8, 4.7), (6.1, 3.7, 2.3)),
            "gd2l+cac": ((11.0, 7.8, 5.3), (5.7, 4.0, 2.0)), "lru+lc": ((11.0, 8.4, 5.2), (4.9, 2.6, 1.3)),
            "lru+mv-fifo": ((56.0, 36.5, 22.8), (4.9, 2.7, 1.4))},
    "0.8": {"lru+cc": ((5.4, 2.9, 2.2), (2.9, 1.5, 0.4)), "gd2l+cc": ((5.1, 3.7, 2.1), (2.9, 1.6, 0.7)),
            "gd2l+cac": ((5.8, 3.7, 2.4), (2.4, 1.6, 0.1)), "lru+lc": ((5.4, 3.3, 3.1), (4.0, 1.5, 0.4)),
            "lru+mv-fifo": ((32.3, 14.1, 6.6), (2.9, 1.6, 0.4))},
}
COLUMNS = (("base util %", "base_utilisation", 100, 0), ("base ms/tx", "base_ms_per_transaction", 1, 2),
           ("flash util %", "flash_utilisation", 100, 0), ("flash ms/tx", "flash_ms_per_transaction", 1, 2),
           ("total ms/tx", "ms_per_transaction", 1, 2), ("pool misses %", "miss_rate", 100, 2),
           ("on flash %", "miss_rate_on_flash", 100, 2), ("off flash %", "miss_rate_off_flash", 100, 2),
           ("tx/min", "transactions_per_minute", 1, 0))
# What a row is set against, which figure of it, and what the thesis has (6.11, 6.12, 6.16).
ANSWERS = (("GD2L+CC / LRU+CC, device time", "gd2l+cc", "lru+cc", "ms_per_transaction"),
           ("GD2L+CC / LRU+CC, transactions", "gd2l+cc", "lru+cc", "transactions_per_minute"),
           ("GD2L+CAC / LRU+CC, device time", "gd2l+cac", "lru+cc", "ms_per_transaction"),
           ("GD2L+CAC / GD2L+CC, device time (what α brings)", "gd2l+cac", "gd2l+cc", "ms_per_transaction"),
           ("GD2L+CAC / LRU+LRU2, device time", "gd2l+cac", "lru+lc", "ms_per_transaction"),
           ("GD2L+CAC / LRU+MV-FIFO, device time", "gd2l+cac", "lru+mv-fifo", "ms_per_transaction"))


class Runs:
    """Simulations of one capture, kept as JSON."""

    def __init__(self, program: str, capture: pathlib.Path, out: pathlib.Path) -> None:
        self.program, self.capture, self.out = program, capture, out
        self.facts = json.loads((capture / "chapter6.json").read_text())
        self.cut = float(os.environ.get("CUT", "1"))
        end = self.facts["begin"] + int((self.facts["end"] - self.facts["begin"]) * self.cut)
        self.transactions = new_orders(capture / "run.log", self.facts["begin"], end)

    def trace(self) -> str:
        """The capture, or its first rows."""
        whole = self.capture / "chapter6.parquet"
        part = self.out / f"chapter6-{self.cut:g}.parquet"
        if self.cut == 1:
            return str(whole)
        if not part.exists():
            first_rows(whole, part, self.facts["seconds"] * self.cut)
        return str(part)

    def joint(self, key: str, combination: str, ratio: str, pools: tuple, *more: str) -> list[dict]:
        name = f"{key}-{ratio}" + (f"-cut-{self.cut:g}" if self.cut != 1 else "")
        if pools != SIZES:
            name += "-pools-" + "-".join(map(str, pools))
        kept = self.out / f"{name}.json"
        if not kept.exists():
            clients = os.environ.get("CLIENTS", "20")
            done = subprocess.run(
                [*CALM, self.program, "joint", self.trace(), "--page-size", "8KiB",
                 "--transactions", f"{self.transactions:.0f}", "--warm-up", "40%", "--memory", "6GiB",
                 "--clients", clients, "--database", ratio, "--pool", ",".join(f"{p}%" for p in pools),
                 "--combination", combination, "--threads", os.environ.get("THREADS", "2"), *more, "--json"],
                check=True, stdout=subprocess.PIPE)
            kept.write_text(json.dumps(json.loads(done.stdout), indent=1))
        return json.loads(kept.read_text())

    def misses(self) -> None:
        """Prints what LRU misses, over the whole capture."""
        kept = self.out / "lru.json"
        if not kept.exists():
            done = subprocess.run(
                [*CALM, self.program, "simulate", self.capture / "chapter6.parquet", "--policy", "lru",
                 "--flash", "3.333%,6.667%,10%,13.333%", "--warm-up", "40%", "--memory", "6GiB", "--threads", "1",
                 "--json"], check=True, stdout=subprocess.PIPE)
            kept.write_bytes(done.stdout)
        print("\nLRU over the whole capture, by size in per cent of its different pages:", flush=True)
        for row in json.loads(kept.read_text()):
            share = row["capacity_pages"] / row["distinct_pages"]
            print(f"- {share:.1%} ({row['capacity_pages']:,} pages): {1 - row['read_hit_ratio']:.2%} of "
                  f"{row['reads']:,} reads miss")


def first_rows(whole: pathlib.Path, part: pathlib.Path, seconds: float) -> None:
    """The first seconds of a capture as a trace."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file = pq.ParquetFile(whole)
    metadata = {k: v for k, v in file.metadata.metadata.items() if k.startswith(b"thermocline.")}
    new = part.with_suffix(".new")
    with pq.ParquetWriter(new, file.schema_arrow, compression="zstd", store_schema=False) as writer:
        for batch in file.iter_batches(1 << 20):
            kept = batch.filter(pc.less(batch["time_ns"], int(seconds * 1e9)))
            writer.write_batch(kept)
            if len(kept) < len(batch):
                break
        writer.add_key_value_metadata(metadata)
    new.rename(part)


def of_pools(values: tuple) -> list:
    """The thesis' values for the pools that are run."""
    return [values[SIZES.index(pool)] for pool in POOLS]


def cells(run: dict) -> list[str]:
    values = ((run.get(field), factor, digits) for _, field, factor, digits in COLUMNS)
    return ["–" if value is None else f"{value * factor:,.{digits}f}" for value, factor, digits in values]


def of_ratio(runs: Runs, ratio: str) -> None:
    """Prints the table of one size of the database."""
    lines, found = [], {}
    for combination in os.environ.get("COMBINATIONS", ",".join(COMBINATIONS)).split(","):
        rows = runs.joint(combination, combination, ratio, POOLS, "--base-filled")
        found[combination] = rows
        totals, misses = (of_pools(values) for values in PAPER[ratio][combination])
        for row, total, miss in zip(rows, totals, misses):
            lines.append([combination, f"{row['pool']:.0%}", *cells(row), total, miss])
    for name, base in (("base only", ("--base-filled",)), ("all on an SSD", ("--base", "ssd"))):
        for row in runs.joint("ssd" if name.startswith("all") else "base", "lru+none:back", ratio, POOLS, *base):
            lines.append([name, f"{row['pool']:.0%}", *cells(row), "", ""])
    flash = next(iter(found.values()))[0]["tier_pages"]
    print(f"\n### Database {ratio} × the tier ({flash:,} pages)\n")
    head = ["combination", "pool", *(name for name, *_ in COLUMNS), "thesis: total", "thesis: misses %"]
    print(table(head, lines))
    print()
    answers = []
    for name, one, other, field in ANSWERS:
        if one not in found or other not in found:
            continue
        ours = [a[field] / b[field] for a, b in zip(found[one], found[other])]
        line = [name, *(f"{value:.2f}" for value in ours)]
        if field == "ms_per_transaction":
            line += [f"{a / b:.2f}" for a, b in zip(*(of_pools(PAPER[ratio][of][0]) for of in (one, other)))]
        else:
            line += ["1.40 to 1.75" if ratio == "3" else "–"] + [""] * (len(POOLS) - 1)
        answers.append(line)
    print(table(["ratio", *(f"pool {p} %" for p in POOLS), *(f"thesis, {p} %" for p in POOLS)], answers))


def main() -> None:
    program, capture, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    runs = Runs(program, capture, out)
    facts = runs.facts
    print(f"{facts['reads']:,} reads, {facts['extensions']:,} extensions, {facts['marks']:,} pages dirtied and "
          f"{facts['marks by hints']:,} by hint bits, {facts['lost']:,} events lost, in {facts['seconds']:.0f} s; "
          f"{facts['marks of unknown buffers']:,} marks of unknown buffers left out, "
          f"{facts['buffers that changed their page']:,} buffers changed their page. "
          f"Taken: the first {runs.cut:.0%}, {runs.transactions:,.0f} New Order transactions.", flush=True)
    runs.misses()
    for ratio in os.environ.get("RATIOS", "3,1.5,0.8").split(","):
        of_ratio(runs, ratio)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
