#!/usr/bin/env python3
"""Turns a recording into a capture: the measured phase only, in order of time, one file.

    finish.py RECORDING CAPTURE [--names NAMES.csv] [--from UNIX_NS] [--to UNIX_NS] [--pages N]
              [--with-bypassed] [--exact | --coarse] [--transactions RUN.log]

Rows outside the measured phase are cut off, and all behind the first N pages asked for. Nothing
in between is left out, except files that no tier ever holds (logs, control files): their rows
are kept with --with-bypassed. Names of files in `hint_object` become names of tables and indexes
(NAMES.csv: file, name); `object` keeps the file. Times are rounded down to 10 microseconds (the
order of rows stays) and latencies to three significant bits, which halves the file; --exact keeps
both as they were recorded, --coarse leaves whole milliseconds and no latencies. --transactions
prints how many New Order transactions ended in the time that was kept, from go-tpc's output of
every second with the time before each line.
"""

import argparse
import csv
import pathlib
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

UNCACHED = ("log", "other")
TICK, COARSE_TICK = 10_000, 1_000_000
VERSION, PAGE_SIZE, START, PRODUCT, PART, DROPPED = (
    b"thermocline." + name
    for name in (b"trace_version", b"page_size", b"start_unix_ns", b"product", b"part", b"dropped")
)


def parts(first: pathlib.Path) -> list[pathlib.Path]:
    """The complete parts of a recording, in order."""
    more = sorted(first.parent.glob(f"{first.stem}.[0-9][0-9][0-9][0-9]{first.suffix}"))
    return [first, *more]


def read(recording: pathlib.Path) -> tuple[pa.Table, dict[bytes, bytes]]:
    """All rows with times since 1970, in order of time, and the metadata of the last part."""
    tables, metadata = [], {}
    for part in parts(recording):
        file = pq.ParquetFile(part)
        metadata = file.metadata.metadata
        table = file.read()
        start = pa.scalar(int(metadata[START]), pa.int64())
        at = table.schema.get_field_index("time_ns")
        times = pc.add(table["time_ns"], start)
        tables.append(table.set_column(at, "time_ns", times).replace_schema_metadata(None))
    return pa.concat_tables(tables).sort_by("time_ns"), metadata


def measured(table: pa.Table, options: argparse.Namespace, page_size: int) -> pa.Table:
    """The rows of the measured phase, up to the last page wanted."""
    time = table["time_ns"]
    inside = pc.and_(pc.greater_equal(time, options.begin), pc.less(time, options.end))
    table = table.filter(inside)
    if not options.with_bypassed:
        kinds = pa.array(UNCACHED)
        table = table.filter(pc.invert(pc.is_in(table["file_kind"], value_set=kinds)))
    if options.pages:
        pages = pc.cumulative_sum(pages_of(table, page_size))
        table = table.filter(pc.less_equal(pages, options.pages))
    return table


def pages_of(table: pa.Table, page_size: int) -> pa.ChunkedArray:
    """How many pages each row asks for: none but reads and writes."""
    moved = pc.is_in(table["operation"].cast(pa.string()), value_set=pa.array(["read", "write"]))
    pages = pc.divide(pc.add(table["length"], page_size - 1), page_size)
    return pc.if_else(moved, pages, 0)


def new_orders(log: pathlib.Path, begin: int, end: int) -> float:
    """New Order transactions that ended between two times since 1970 (ns); a second that is cut
    counts in part."""
    total = 0.0
    for line in log.read_text(errors="replace").splitlines():
        found = re.match(r"(\d+) \[Current\] NEW_ORDER - Takes\(s\): ([\d.]+), Count: (\d+)", line)
        if found:
            stop = int(found[1]) * 1000
            start = stop - float(found[2]) * 1e9
            inside = max(0.0, min(stop, end) - max(start, begin))
            total += int(found[3]) * inside / (stop - start)
    return total


def named(table: pa.Table, names: pathlib.Path) -> pa.Table:
    """Names of tables and indexes in place of names of files."""
    with open(names, newline="") as lines:
        known = dict(csv.reader(lines))
    column = table["hint_object"].cast(pa.string()).combine_chunks().dictionary_encode()
    words = [known.get(word, word) for word in column.dictionary.to_pylist()]
    column = pa.array(words, pa.string()).take(column.indices)
    return table.set_column(table.schema.get_field_index("hint_object"), "hint_object", column)


def coarse(table: pa.Table) -> pa.Table:
    """Times in milliseconds, latencies unknown."""
    ticks = pc.multiply(pc.divide(table["time_ns"], COARSE_TICK), COARSE_TICK)
    table = table.set_column(table.schema.get_field_index("time_ns"), "time_ns", ticks)
    unknown = pa.array([0], pa.int64()).take(pa.array([0] * table.num_rows))
    return table.set_column(table.schema.get_field_index("latency_ns"), "latency_ns", unknown)


def rounded(table: pa.Table) -> pa.Table:
    """Times in units of 10 microseconds, latencies with three significant bits."""
    ticks = pc.multiply(pc.divide(table["time_ns"], TICK), TICK)
    latency = table["latency_ns"]
    highest = pc.floor(pc.log2(pc.max_element_wise(latency, 4))).cast(pa.int64())
    step = pc.shift_left(pa.scalar(1, pa.int64()), pc.subtract(highest, 2))
    latency = pc.multiply(pc.divide(latency, step), step)
    for name, values in (("time_ns", ticks), ("latency_ns", latency)):
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return table


def write(table: pa.Table, metadata: dict[bytes, bytes], begin: int, path: pathlib.Path) -> None:
    """One file, fixed columns without nulls."""
    at = table.schema.get_field_index("time_ns")
    table = table.set_column(at, "time_ns", pc.subtract(table["time_ns"], begin))
    hints = table.schema.names[8:]
    fields = []
    for name in table.schema.names:
        number = table.schema.field(name).type if name not in hints else pa.string()
        number = pa.string() if pa.types.is_dictionary(number) else number
        fields.append(pa.field(name, number, nullable=name in hints))
    kept = {key: metadata[key] for key in (VERSION, PAGE_SIZE, PRODUCT, DROPPED)}
    schema = pa.schema(fields)
    encodings = {"time_ns": "DELTA_BINARY_PACKED", "offset": "BYTE_STREAM_SPLIT"}
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in schema.names if name not in encodings],
        dictionary_pagesize_limit=1 << 21,
        column_encoding=encodings,
        store_schema=False,
    ) as writer:
        writer.write_table(table.cast(schema), row_group_size=1 << 18)
        writer.add_key_value_metadata(kept | {START: str(begin).encode(), PART: b"1"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("recording", type=pathlib.Path)
    parser.add_argument("capture", type=pathlib.Path)
    parser.add_argument("--names", type=pathlib.Path)
    parser.add_argument("--from", dest="begin", type=int)
    parser.add_argument("--to", dest="end", type=int, default=(1 << 63) - 1)
    parser.add_argument("--pages", type=int, default=0)
    parser.add_argument("--with-bypassed", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--coarse", action="store_true")
    parser.add_argument("--transactions", type=pathlib.Path)
    options = parser.parse_args()
    table, metadata = read(options.recording)
    if options.begin is None:
        options.begin = int(metadata[START])
    table = measured(table, options, int(metadata[PAGE_SIZE]))
    if options.names:
        table = named(table, options.names)
    if options.coarse:
        table = coarse(table)
    elif not options.exact:
        table = rounded(table)
    write(table, metadata, options.begin, options.capture)
    if options.transactions:
        last = table["time_ns"][-1].as_py()
        count = new_orders(options.transactions, options.begin, last)
        print(f"{count:.0f} New Order transactions in {(last - options.begin) / 1e9:.1f} s")


if __name__ == "__main__":
    main()
