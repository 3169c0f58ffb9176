#!/usr/bin/env python3
"""The table of README.md: one row for each capture, of those named or all beside this file.

table.py [CAPTURE.parquet ...]
"""

import collections
import pathlib
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COLUMNS = "capture | MiB | s | requests | reads | sequential | writes: recovery | replacement | \
synchronous | other | pages asked for | different pages | objects | hint sets"
HINTS = ["hint_object", "file_kind", "request", "page_type", "role"]
WRITES = ["recovery-write", "replacement-write", "synchronous-write", "write"]


def pages_of(table: pa.Table, page: int) -> tuple[int, int]:
    """Pages asked for, and different ones among them."""
    first = pc.divide(table["offset"], page)
    last = pc.divide(pc.add(table["offset"], pc.subtract(table["length"], 1)), page)
    asked = pc.sum(pc.add(pc.subtract(last, first), 1)).as_py()
    ranges = pa.table({"object": table["object"], "first": first, "last": last})
    pages = set()
    for range_ in ranges.group_by(ranges.schema.names).aggregate([]).to_pylist():
        numbers = range(range_["first"], range_["last"] + 1)
        pages.update((range_["object"], number) for number in numbers)
    return asked, len(pages)


def row(path: pathlib.Path) -> str:
    """One capture."""
    file = pq.ParquetFile(path)
    page = int(file.metadata.metadata[b"thermocline.page_size"])
    table = file.read()
    moved = pc.is_in(table["operation"], value_set=pa.array(["read", "write"]))
    table = table.filter(moved)
    requests = collections.Counter(table["request"].to_pylist())
    writes = [requests[name] for name in WRITES]
    asked, different = pages_of(table, page)
    sets = table.group_by(HINTS).aggregate([]).num_rows
    seconds = (table["time_ns"][-1].as_py() - table["time_ns"][0].as_py()) / 1e9
    cells = [
        path.stem,
        f"{path.stat().st_size / 1048576:.1f}",
        f"{seconds:.0f}",
        *(f"{n:,}" for n in (table.num_rows, table.num_rows - sum(writes))),
        *(f"{n:,}" for n in (requests["sequential-read"], *writes, asked, different)),
        f"{len(table['hint_object'].unique())}",
        f"{sets}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    here = pathlib.Path(__file__).parent
    captures = [pathlib.Path(name) for name in sys.argv[1:]] or sorted(here.glob("*.parquet"))
    print(f"| {COLUMNS} |")
    print("|---|" + "---:|" * COLUMNS.count("|"))
    for capture in captures:
        print(row(capture))


if __name__ == "__main__":
    main()
