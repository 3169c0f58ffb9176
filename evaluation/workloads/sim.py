"""Runs of the simulator for the tables of this directory, kept as JSON so that a table can be made
again without them."""

import json
import os
import pathlib
import re
import subprocess

PAGE = 8192


class Runs:
    """Simulations of the traces in one directory, their results in another."""

    def __init__(self, program: str, traces: str, out: str) -> None:
        self.program, self.traces, self.out = program, pathlib.Path(traces), pathlib.Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.bytes = int((self.traces / "bytes").read_text())
        self.version = (self.traces / "version").read_text().strip()

    def trace(self, name: str) -> str:
        return str(self.traces / f"{name}.parquet")

    def pages(self, share: float) -> int:
        """Pages in per cent of the database."""
        return int(self.bytes * share / 100 / PAGE)

    def _run(self, key: str, arguments: list[str]) -> list[dict]:
        kept = self.out / f"{key}.json"
        if not kept.exists():
            threads = ["--threads", os.environ.get("THREADS", "2")]
            done = subprocess.run([self.program, *arguments, *threads, "--json"], check=True,
                                  stdout=subprocess.PIPE)
            rows = json.loads(done.stdout)
            for row in rows:
                row.pop("samples", None)
            kept.write_text(json.dumps(rows, indent=1))
        return json.loads(kept.read_text())

    def distinct(self, name: str) -> int:
        """Different pages of a trace."""
        kept = self.out / f"{name}.pages"
        if not kept.exists():
            text = subprocess.run([self.program, "trace", "info", self.trace(name)], check=True,
                                  stdout=subprocess.PIPE, text=True).stdout
            kept.write_text(re.search(r"^pages +(\d+)", text, re.M)[1])
        return int(kept.read_text())

    def simulate(self, key: str, traces: list[str], *arguments: str) -> dict[str, dict]:
        """Results by policy; of several sizes the last."""
        rows = self._run(key, ["simulate", *map(self.trace, traces), "--page-size", "8KiB", *arguments])
        return {row["policy"]: row for row in rows}

    def joint(self, key: str, trace: str, tier: int, pool: int, combinations: str,
              *arguments: str) -> dict[str, dict]:
        """Results by combination, of a tier and a pool of so many pages."""
        ratio = self.distinct(trace) / tier
        rows = self._run(key, ["joint", self.trace(trace), "--page-size", "8KiB", "--warm-up", "0",
                               "--database", f"{ratio:.6f}", "--pool", f"{100 * pool / tier:.4f}%",
                               "--combination", combinations, *arguments])
        return {row["combination"]: row for row in rows}


def without_plans(source: pathlib.Path, target: pathlib.Path) -> None:
    """The same trace as it would be recorded without the extension."""
    import pyarrow.parquet as pq

    if target.exists():
        return
    file = pq.ParquetFile(source)
    table = file.read()
    names = [n for n in table.schema.names if not n.startswith("plan_")]
    kept = {k: v for k, v in file.metadata.metadata.items() if k.startswith(b"thermocline.")}
    with pq.ParquetWriter(target, table.select(names).schema.remove_metadata(), compression="zstd",
                          store_schema=False) as writer:
        writer.write_table(table.select(names).replace_schema_metadata(None), row_group_size=1 << 18)
        writer.add_key_value_metadata(kept)


def as_blocks(source: pathlib.Path, target: pathlib.Path) -> None:
    """The same trace with every temporary file as long from the start as it will be: a read of its
    last page before all else. A tier of files must tell base each time one grows; one of blocks,
    as hStorage-DB's was, knows no lengths."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if target.exists():
        return
    file = pq.ParquetFile(source)
    table = file.read()
    kept = {k: v for k, v in file.metadata.metadata.items() if k.startswith(b"thermocline.")}
    temporary = table.filter(pc.and_(pc.equal(table["file_kind"], "temporary"), pc.equal(table["operation"], "write")))
    last = {}
    for row, (name, offset) in enumerate(zip(temporary["object"].to_pylist(), temporary["offset"].to_pylist())):
        if name not in last or offset > last[name][0]:
            last[name] = (offset, row)
    first = temporary.take(pa.array([row for _, row in last.values()], pa.int64()))
    for column, value in (("time_ns", 0), ("operation", "read"), ("length", PAGE), ("request", "read")):
        at = first.schema.get_field_index(column)
        first = first.set_column(at, first.schema.field(column), pa.array([value] * len(first), first.schema.field(column).type))
    both = pa.concat_tables([first, table]).replace_schema_metadata(None)
    with pq.ParquetWriter(target, both.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(both, row_group_size=1 << 18)
        writer.add_key_value_metadata(kept)


def split(source: pathlib.Path, classes: dict[str, list[str]], directory: pathlib.Path) -> list[str]:
    """One trace for each class of objects, times as before, so that the simulator counts hits for
    each: {class: names of tables and indexes, or kinds of files after a colon}. What is in none
    becomes `rest`. Returns the classes that have requests, `rest` last."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file = pq.ParquetFile(source)
    table = file.read()
    kept = {k: v for k, v in file.metadata.metadata.items() if k.startswith(b"thermocline.")}
    left = pa.array([True] * len(table))
    found = []
    for name, members in [*classes.items(), ("rest", None)]:
        inside = left
        if members is not None:
            objects = pa.array([m for m in members if not m.startswith(":")], pa.string())
            kinds = pa.array([m[1:] for m in members if m.startswith(":")], pa.string())
            by_object = pc.fill_null(pc.is_in(table["hint_object"], value_set=objects), False)
            by_kind = pc.fill_null(pc.is_in(table["file_kind"], value_set=kinds), False)
            inside = pc.or_(by_object, by_kind)
            left = pc.and_(left, pc.invert(inside))
        part = table.filter(inside)
        if len(part) == 0:
            continue
        found.append(name)
        with pq.ParquetWriter(directory / f"{source.stem}.{name}.parquet", part.schema.remove_metadata(),
                              compression="zstd", store_schema=False) as writer:
            writer.write_table(part.replace_schema_metadata(None))
            writer.add_key_value_metadata(kept)
    return found


def table(head: list[str], rows: list[list[object]]) -> str:
    """Markdown; all columns but the first to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "–"
