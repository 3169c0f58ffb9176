#!/usr/bin/env python3
"""The tables of tpcc.md, from what tpcc.sh left in a directory."""

import json
import pathlib
import sys

from sim import percent, table

PAPER = {"12.5": "2.4", "25": "3.7"}


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    for capture in ("postgres", "mariadb"):
        ssd = json.loads((out / f"{capture}-ssd.json").read_text())
        for size, paper in PAPER.items():
            rows = json.loads((out / f"{capture}-{size}.json").read_text())
            # Of each mode: the pool stands for the database's own buffers, which need no flash to keep
            # what is written.
            none = {r["write_back"]: r["transactions_per_minute"] for r in rows
                    if r["combination"].startswith("lru+none")}
            print(f"\n### {capture}-tpcc-0, flash {size} % of the pages, memory 2.5 %\n")
            lines = []
            small = json.loads((out / f"{capture}-{size}-regions.json").read_text())
            for row in [*rows, *({**r, "combination": f"{r['combination']}, regions of 8 pages"} for r in small)]:
                name = row["combination"].removeprefix("lru+")
                rate = row["transactions_per_minute"]
                below = row["reads"] - row["pool_hits"]
                written = row["flash_writes"] * row["page_size"] / 2**20
                lines.append([
                    {"none": "disk only:through", "none:back": "disk only"}.get(name, name), f"{rate:.0f}",
                    f"{rate / none[row['write_back']]:.1f}",
                    paper if name.startswith("tac:") and "," not in name else "",
                    percent(row["flash_reads"], below), f"{written:.0f}",
                    row["base_reads"], row["base_writes"]])
            for row in ssd:
                rate, back = row["transactions_per_minute"], row["write_back"]
                lines.append(["all on an SSD" + ("" if back else ":through"), f"{rate:.0f}",
                              f"{rate / none[back]:.1f}", "", "–", "–", "–", "–"])
            print(table(["policy", "transactions a minute", "× disk only", "paper", "hits of the tier %",
                         "MiB written to flash", "base reads", "base writes"], lines))
            reads = json.loads((out / f"{capture}-{size}-reads.json").read_text())
            rate = {row["combination"]: row["transactions_per_minute"] for row in reads}
            gains = ", ".join(f"{name.removeprefix('lru+').removesuffix(':through')} × {value / rate['lru+none']:.1f}"
                              for name, value in rate.items() if name != "lru+none")
            print(f"\nAs if nothing was written: {gains} of disk only.")


if __name__ == "__main__":
    main()
