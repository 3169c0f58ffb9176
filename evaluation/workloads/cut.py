#!/usr/bin/env python3
"""Cuts a recording into traces, one for each phase, as the scripts of this directory simulate them.

    cut.py RECORDING DIRECTORY --names NAMES.csv --phases PHASES 

PHASES has a line `name from to` for each, in nanoseconds since 1970. Files that no tier holds
(logs, control files) are left out; of the others, all that a server asked for stays. Reads that a
session makes one after another in order are put together to READ_AHEAD pages: the mount records
what PostgreSQL asks for, 8 KiB at a time, but a kernel reads 128 KiB ahead of that, and without
it a disk would turn once for every page where sessions or files take turns.
"""

import argparse
import csv
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

READ_AHEAD = 16
PAGE = 8192
FIXED = ["time_ns", "client", "operation", "object", "offset", "length", "latency_ns", "served"]
TEXT = ["operation", "object", "served", "hint_object", "file_kind", "request", "page_type", "role",
        "plan_level", "plan_access", "plan_operator"]


def read(first: pathlib.Path) -> tuple[pa.Table, dict[bytes, bytes]]:
    """All parts in order of time, times since 1970."""
    tables, metadata = [], {}
    for part in [first, *sorted(first.parent.glob(f"{first.stem}.[0-9][0-9][0-9][0-9]{first.suffix}"))]:
        file = pq.ParquetFile(part, read_dictionary=TEXT)
        metadata = file.metadata.metadata
        table = file.read()
        kinds = pa.array(["log", "other"])
        table = table.filter(pc.invert(pc.fill_null(
            pc.is_in(table["file_kind"].cast(pa.string()), value_set=kinds), False)))
        start = pa.scalar(int(metadata[b"thermocline.start_unix_ns"]), pa.int64())
        table = table.set_column(0, "time_ns", pc.add(table["time_ns"], start))
        tables.append(table.replace_schema_metadata(None))
    if int(metadata.get(b"thermocline.dropped", b"0")):
        raise SystemExit("the recording dropped requests")
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks().sort_by("time_ns"), metadata


def codes(table: pa.Table, name: str) -> tuple[np.ndarray, list[str]]:
    column = table[name].combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False), column.dictionary.to_pylist()


def is_word(table: pa.Table, name: str, word: str) -> np.ndarray:
    numbers, words = codes(table, name)
    return np.isin(numbers, [i for i, w in enumerate(words) if w == word])


def read_ahead(table: pa.Table) -> pa.Table:
    """Sequential reads of one session and object that follow one another, put together."""
    if len(table) == 0:
        return table
    client = table["client"].to_numpy()
    where, _ = codes(table, "object")
    offset, length = table["offset"].to_numpy(), table["length"].to_numpy()
    ordered = is_word(table, "operation", "read") & (
        is_word(table, "plan_access", "sequential") | is_word(table, "request", "sequential-read"))
    by = np.lexsort((np.arange(len(client)), where, client))
    c, w, o, n, s = client[by], where[by], offset[by], length[by], ordered[by]
    follows = np.zeros(len(by), bool)
    follows[1:] = (c[1:] == c[:-1]) & (w[1:] == w[:-1]) & (o[1:] == o[:-1] + n[:-1]) & s[1:] & s[:-1]
    begin = np.maximum.accumulate(np.where(follows, 0, np.arange(len(by))))
    first = ~follows | ((np.arange(len(by)) - begin) % READ_AHEAD == 0)
    total = np.add.reduceat(n, np.flatnonzero(first))
    kept = by[first]
    back = np.argsort(kept)
    table = table.take(pa.array(kept[back]))
    return table.set_column(table.schema.get_field_index("length"), "length",
                            pa.array(total[back]).cast(table.schema.field("length").type))


def write(table: pa.Table, metadata: dict[bytes, bytes], begin: int, path: pathlib.Path) -> None:
    table = table.set_column(0, "time_ns", pc.subtract(table["time_ns"], begin))
    fields = []
    for field in table.schema:
        kind = pa.string() if pa.types.is_dictionary(field.type) else field.type
        fields.append(pa.field(field.name, kind, nullable=field.name not in FIXED))
    names = ("trace_version", "page_size", "product", "dropped")
    kept = {k: metadata[k] for k in (b"thermocline." + n.encode() for n in names)}
    kept |= {b"thermocline.start_unix_ns": str(begin).encode(), b"thermocline.part": b"1"}
    with pq.ParquetWriter(path, pa.schema(fields), compression="zstd", compression_level=3,
                          use_dictionary=TEXT, store_schema=False) as writer:
        writer.write_table(table.cast(pa.schema(fields)), row_group_size=1 << 18)
        writer.add_key_value_metadata(kept)


def named(table: pa.Table, path: pathlib.Path) -> pa.Table:
    with open(path, newline="") as lines:
        known = dict(csv.reader(lines))
    column = table["hint_object"].combine_chunks()
    words = pa.array([known.get(w, w) for w in column.dictionary.to_pylist()], pa.string())
    column = words.take(column.indices).dictionary_encode()
    return table.set_column(table.schema.get_field_index("hint_object"), "hint_object", column)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("recording", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--names", type=pathlib.Path, required=True)
    parser.add_argument("--phases", type=pathlib.Path, required=True)
    options = parser.parse_args()
    table, metadata = read(options.recording)
    table = named(table, options.names)
    time = table["time_ns"].to_numpy()
    for line in options.phases.read_text().splitlines():
        name, begin, end = line.split()
        first, last = np.searchsorted(time, [int(begin), int(end)])
        part = read_ahead(table.slice(first, last - first))
        write(part, metadata, int(begin), options.directory / f"{name}.parquet")
        print(f"{name}: {last - first} requests, {len(part)} with reads put together")


if __name__ == "__main__":
    main()
