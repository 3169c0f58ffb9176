#!/usr/bin/env python3
"""Captures every page request of a PostgreSQL's buffer manager, hits too, and the pages it dirties.

    logical.py record SERVER OUT --requests N --seconds S      (root; Linux 5.2 or newer)
    logical.py convert OUT TRACE.parquet

`record` puts uprobes on the server program SERVER: on its static probe `buffer__read__done`, which
fires once for each page a backend asks for, and on the entries of MarkBufferDirty and
MarkBufferDirtyHint. It needs no debug symbols and no change of the server, which must have been
built with --enable-dtrace, as Debian's is. The kernel's ring buffers, one a CPU, go to OUT as they
are; `record` ends after N page requests or S seconds and says how many events were lost.

`convert` makes one trace of them, in order of time. A page that is marked dirty is named by its
buffer's number only; OUT/buffers.csv says which page a buffer holds (pg_buffercache, after the
capture). That holds as long as no buffer changed its page, so shared_buffers must be larger than
the database; buffers with another page than OUT/before.csv said are counted. OUT/names.csv
(database, relfilenode, name, kind, catalog) gives names and kinds of files.

In the trace a page asked for is a read, one that extends its file and one marked dirty is a
write. Marks of one backend for one buffer with nothing of that backend between are one write.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import subprocess
import time
from typing import BinaryIO

import numpy as np

GROUP = "thermocline"
SUB_BUFFER, PAGE = 65536, 8192
FORKS = ("", "_fsm", "_vm", "_init")
# Of the probe's arguments: fork, block, tablespace, database, relation, backend, extends, found.
ARGUMENTS = {"fork": 0, "block": 1, "database": 3, "relation": 4, "extends": 6}
REGISTERS = {"eax": "ax", "ebx": "bx", "ecx": "cx", "edx": "dx", "esi": "si", "edi": "di",
             "al": "ax", "bl": "bx", "cl": "cx", "dl": "dx", "sil": "si", "dil": "di"}


def fetched(argument: str) -> str:
    """An argument of a static probe in the words of uprobe_events."""
    size, place = argument.split("@")
    kind = f"{'s' if size.startswith('-') else 'u'}{8 * abs(int(size))}"
    if place.startswith("$"):
        return f"\\{place[1:]}:{kind}"
    inside = re.fullmatch(r"(-?\d*)\(%(\w+)\)", place)
    name = inside[2] if inside else place[1:]
    short = re.sub(r"^(r\d+)[dwb]$", r"\1", re.sub(r"^r([abcds]\w)$", r"\1", name))
    register = REGISTERS.get(short, short)
    if inside:
        return f"{int(inside[1] or 0):+d}(%{register}):{kind}"
    return f"%{register}:{kind}"


def probes(server: str) -> list[str]:
    """Definitions of all probes."""
    notes = subprocess.run(["readelf", "-W", "-n", server], check=True, text=True,
                           stdout=subprocess.PIPE).stdout
    found = re.findall(r"Name: buffer__read__done\s+Location: 0x(\w+), Base: 0x(\w+), "
                       r"Semaphore: 0x(\w+)\s+Arguments: (.*)", notes)
    symbols = subprocess.run(["readelf", "-W", "--dyn-syms", server], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    segments = subprocess.run(["readelf", "-W", "-l", server], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
    loads = [[int(field, 16) for field in line] for line in re.findall(
        r"LOAD\s+0x(\w+) 0x(\w+) 0x\w+ 0x(\w+)", segments)]

    def offset(address: int) -> int:
        return next(address - at + start for start, at, size in loads if at <= address < at + size)

    lines = []
    for number, (place, _, semaphore, arguments) in enumerate(found):
        words = arguments.split()
        fields = " ".join(f"{name}={fetched(words[at])}" for name, at in ARGUMENTS.items())
        counter = offset(int(semaphore, 16))
        lines.append(f"p:{GROUP}/read{number} {server}:{offset(int(place, 16)):#x}({counter:#x}) {fields}")
    for number, name in enumerate(("MarkBufferDirty", "MarkBufferDirtyHint")):
        place = re.search(rf"(\w+)\s+\d+ FUNC\s+GLOBAL DEFAULT\s+\d+ {name}$", symbols, re.M)
        lines.append(f"p:{GROUP}/dirty{number} {server}:{offset(int(place[1], 16)):#x} buffer=%di:s32")
    if not found:
        raise SystemExit(f"{server} has no probe buffer__read__done")
    return lines


class Ring:
    """Ring buffers of their own, beside whoever else traces this machine."""

    def __init__(self, server: str) -> None:
        self.root = pathlib.Path("/sys/kernel/tracing")
        if not (self.root / "uprobe_events").exists():
            subprocess.run(["mount", "-t", "tracefs", "nodev", self.root], check=True)
        self.names = []
        for line in probes(server):
            self._define(line)
            self.names.append(line.split()[0].split("/")[1])
        self.own = self.root / "instances" / GROUP
        self.own.mkdir()
        self._set("trace_clock", "mono")
        self._set("buffer_subbuf_size_kb", str(SUB_BUFFER // 1024))
        self._set("buffer_size_kb", str(128 * 1024))

    def _define(self, line: str) -> None:
        # Python's own append mode seeks, which this file refuses.
        events = os.open(self.root / "uprobe_events", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(events, (line + "\n").encode())
        finally:
            os.close(events)

    def _set(self, name: str, value: str) -> None:
        (self.own / name).write_text(value)

    def formats(self) -> dict[str, dict]:
        """Of each event: its number, and where its fields are."""
        known = {}
        for name in self.names:
            text = (self.root / "events" / GROUP / name / "format").read_text()
            fields = re.findall(r"field:.*?(\w+);\s+offset:(\d+);\s+size:(\d+);", text)
            known[name] = {"id": int(re.search(r"^ID: (\d+)", text, re.M)[1]),
                           "fields": {field: (int(at), int(size)) for field, at, size in fields}}
        return known

    def turn(self, on: bool) -> None:
        self._set(f"events/{GROUP}/enable", "1" if on else "0")

    def stats(self) -> dict[str, int]:
        """Events handed over and lost, of all CPUs."""
        total: dict[str, int] = {}
        for path in (self.own / "per_cpu").glob("cpu*/stats"):
            for key, value in re.findall(r"^([a-z ]+): (\d+)$", path.read_text(), re.M):
                total[key] = total.get(key, 0) + int(value)
        return total

    def close(self) -> None:
        self.turn(False)
        self.own.rmdir()
        for name in self.names:
            self._define(f"-:{GROUP}/{name}")


def drain(pipes: list[tuple[int, BinaryIO]]) -> None:
    """Takes what is in the ring buffers. Called now and then: a sub-buffer that is not full is
    handed over at its whole size."""
    for pipe, file in pipes:
        try:
            while taken := os.read(pipe, SUB_BUFFER):
                file.write(taken)
        except BlockingIOError:
            pass


def record(options: argparse.Namespace) -> None:
    ring, pipes = Ring(options.server), []
    try:
        for cpu in sorted((ring.own / "per_cpu").iterdir()):
            pipe = os.open(cpu / "trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
            pipes.append((pipe, open(options.out / f"{cpu.name}.raw", "wb")))
        begin, end = time.time_ns(), time.monotonic() + options.seconds
        shift = begin - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        ring.turn(True)
        while time.monotonic() < end and ring.stats()["read events"] < options.requests:
            time.sleep(0.25)
            drain(pipes)
        ring.turn(False)
        stop = time.time_ns()
        drain(pipes)
        stats = ring.stats()
        kept = {"begin": begin, "end": stop, "monotonic": shift, "formats": ring.formats(),
                "events": stats["read events"], "lost": stats["overrun"] + stats["dropped events"]}
        (options.out / "capture.json").write_text(json.dumps(kept, indent=1))
    finally:
        for pipe, file in pipes:
            os.close(pipe)
            file.close()
        ring.close()
    print(f"{kept['events']} events in {(stop - begin) / 1e9:.0f} s, {kept['lost']} lost")


def events(path: pathlib.Path, formats: dict[str, dict]) -> tuple[np.ndarray, ...]:
    """Time, process, name's number and position of every event of a CPU, with the bytes. All
    sub-buffers are walked at the same time, one event of each at a step."""
    data = np.fromfile(path, np.uint8)
    data = data[:len(data) // SUB_BUFFER * SUB_BUFFER]
    words = data.view(np.uint32)
    at = np.arange(0, len(data), SUB_BUFFER)
    clock = data.view(np.uint64)[at // 8].astype(np.int64)
    size = (data.view(np.uint64)[at // 8 + 1] & ((1 << 30) - 1)).astype(np.int64)
    end, at = at + 16 + size, at + 16
    times, places = [], []
    while len(at):
        inside = at < end
        at, end, clock = at[inside], end[inside], clock[inside]
        head = words[at // 4]
        kind, delta = head & 31, (head >> 5).astype(np.int64)
        second = words[np.minimum(at // 4 + 1, len(words) - 1)].astype(np.int64)
        extends, absolute = kind == 30, kind == 31
        far = (second << 27) + delta
        clock = np.where(absolute, (clock >> 59 << 59) | far, clock + np.where(extends, far, delta))
        event = (kind > 0) & (kind < 29)
        long = kind == 0
        times.append(clock[event | long])
        places.append((at + np.where(long, 8, 4))[event | long])
        length = np.select([event, long, extends | absolute],
                           [4 + 4 * kind.astype(np.int64), 4 + second, 8], 4 + second)
        at = at + length
    time, place = np.concatenate(times), np.concatenate(places)
    order = np.argsort(time, kind="stable")
    return data, time[order], place[order]


def field(data: np.ndarray, place: np.ndarray, where: tuple[int, int]) -> np.ndarray:
    """A field of the events at `place`."""
    at, size = where
    found = np.zeros(len(place), np.int64)
    for byte in range(size):
        found |= data[place + (at + byte)].astype(np.int64) << (8 * byte)
    return found


def page_of(database: np.ndarray, relation: np.ndarray, fork: np.ndarray, files: dict) -> np.ndarray:
    """The number of each page's file."""
    key = (database << 34) | (relation << 2) | fork
    known, inverse = np.unique(key, return_inverse=True)
    numbers = [files.setdefault((int(k) >> 34, (int(k) >> 2) & 0xffffffff, int(k) & 3), len(files))
               for k in known]
    return np.array(numbers, np.int32)[inverse]


def buffers(path: pathlib.Path, files: dict) -> tuple[np.ndarray, np.ndarray]:
    """Of each buffer by number the file, -1 for none, and the block."""
    rows = np.array([[int(cell) for cell in row] for row in csv.reader(open(path, newline=""))])
    file = np.full(rows[:, 0].max() + 1, -1, np.int32)
    block = np.zeros(len(file), np.int64)
    file[rows[:, 0]] = page_of(rows[:, 1], rows[:, 2], rows[:, 3], files)
    block[rows[:, 0]] = rows[:, 4]
    return file, block


def decode(path: pathlib.Path, meta: dict, held: tuple, files: dict) -> dict[str, np.ndarray]:
    """The requests of one CPU as columns."""
    formats = meta["formats"]
    data, time_ns, place = events(path, formats)
    number = field(data, place, (0, 2))
    pid = field(data, place, next(iter(formats.values()))["fields"]["common_pid"]).astype(np.int32)
    file = np.full(len(place), -1, np.int32)
    block = np.zeros(len(place), np.uint32)
    op = np.zeros(len(place), np.uint8)  # 0 read, 1 write by extension, 2 marked dirty, 3 by a hint
    for name, format in formats.items():
        mine, fields = np.flatnonzero(number == format["id"]), format["fields"]
        where = place[mine]
        if name.startswith("read"):
            get = {key: field(data, where, fields[key]) for key in ARGUMENTS}
            file[mine] = page_of(get["database"], get["relation"], get["fork"] & 3, files)
            block[mine] = get["block"]
            op[mine] = get["extends"] != 0
        else:
            buffer = field(data, where, fields["buffer"])
            # A buffer of a session's own temporary table has a negative number.
            buffer = np.where((buffer > 0) & (buffer < len(held[0])), buffer, 0)
            file[mine] = held[0][buffer]
            block[mine] = held[1][buffer]
            op[mine] = 2 + int(name[-1])
    return {"time": time_ns, "pid": pid, "file": file, "block": block, "op": op}


def merged(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """One order of time."""
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    order = np.argsort(columns["time"], kind="stable")
    return {key: column[order] for key, column in columns.items()}


def repeated(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Marks of a buffer that the same backend's last event marked already."""
    order = np.argsort(columns["pid"], kind="stable")
    same = np.zeros(len(order), bool)
    here, last = order[1:], order[:-1]
    same[here] = (columns["op"][here] >= 2) & (columns["op"][last] >= 2)
    for key in ("pid", "file", "block"):
        same[here] &= columns[key][here] == columns[key][last]
    return same


def names_of(path: pathlib.Path, files: dict) -> tuple[list[str], list[str], list[str]]:
    """Of each file: its path, what it is called, its kind."""
    known = {(int(row[0]), int(row[1])): row[2:] for row in csv.reader(open(path, newline=""))}
    objects, names, kinds = [], [], []
    for database, relation, fork in files:
        place = f"data/base/{database}" if database else "data/global"
        objects.append(f"{place}/{relation}{FORKS[fork]}")
        name, kind, catalog = known.get((database, relation), (objects[-1], "r", "t"))
        names.append(name)
        kinds.append("map" if fork else "catalog" if catalog == "t" else
                     "index" if kind == "i" else "relation")
    return objects, names, kinds


def write(columns: dict[str, np.ndarray], words: tuple, path: pathlib.Path, meta: dict) -> None:
    """The trace, without latencies and places."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = ("operation", "object", "hint_object", "file_kind", "request")
    schema = pa.schema([pa.field("time_ns", pa.int64(), False), pa.field("client", pa.int32(), False),
                        pa.field("operation", pa.string(), False), pa.field("object", pa.string(), False),
                        pa.field("offset", pa.int64(), False), pa.field("length", pa.int64(), False),
                        *(pa.field(name, pa.string()) for name in text[2:])])
    metadata = {"thermocline.trace_version": "1", "thermocline.page_size": str(PAGE),
                "thermocline.start_unix_ns": str(meta["monotonic"] + int(columns["time"][0])),
                "thermocline.product": "logical.py", "thermocline.part": "1",
                "thermocline.dropped": str(meta["lost"])}
    objects, names, kinds = words
    start, step = columns["time"][0], 1 << 20
    with pq.ParquetWriter(path, schema, compression="zstd", compression_level=1, store_schema=False,
                          use_dictionary=["client", "length", *text]) as writer:
        writer.add_key_value_metadata(metadata)
        for at in range(0, len(columns["time"]), step):
            part = {key: column[at:at + step] for key, column in columns.items()}
            op, file = pa.array(np.minimum(part["op"], 1)), pa.array(part["file"])
            taken = [pa.array(part["time"] - start), pa.array(part["pid"]),
                     pa.array(["read", "write"]).take(op), pa.array(objects).take(file),
                     pa.array(part["block"].astype(np.int64) * PAGE),
                     pa.array(np.full(len(file), PAGE)), pa.array(names).take(file),
                     pa.array(kinds).take(file), pa.array(["read", "write"]).take(op)]
            writer.write_table(pa.Table.from_arrays(taken, schema=schema))


def convert(options: argparse.Namespace) -> None:
    meta = json.loads((options.out / "capture.json").read_text())
    files: dict = {}
    before = buffers(options.out / "before.csv", files)
    held = buffers(options.out / "buffers.csv", files)
    both = slice(0, min(len(before[0]), len(held[0])))
    filled = before[0][both] >= 0
    moved = filled & ((before[0][both] != held[0][both]) | (before[1][both] != held[1][both]))
    raw = [path for path in sorted(options.out.glob("*.raw")) if path.stat().st_size]
    columns = merged([decode(path, meta, held, files) for path in raw])
    unknown = columns["file"] < 0
    twice = repeated(columns)
    facts = {"events": len(unknown), "lost": meta["lost"], "marks of unknown buffers": int(unknown.sum()),
             "marks of a buffer just marked": int((twice & ~unknown).sum()),
             "buffers that changed their page": int(moved.sum())}
    keep = ~(unknown | twice)
    columns = {key: column[keep] for key, column in columns.items()}
    op = columns["op"]
    facts |= {"reads": int((op == 0).sum()), "extensions": int((op == 1).sum()),
              "marks": int((op == 2).sum()), "marks by hints": int((op == 3).sum()),
              "seconds": float(columns["time"][-1] - columns["time"][0]) / 1e9,
              "begin": int(columns["time"][0]) + meta["monotonic"],
              "end": int(columns["time"][-1]) + meta["monotonic"]}
    write(columns, names_of(options.out / "names.csv", files), options.trace, meta)
    options.trace.with_suffix(".json").write_text(json.dumps(facts, indent=1))
    print(json.dumps(facts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("record")
    one.add_argument("server")
    one.add_argument("out", type=pathlib.Path)
    one.add_argument("--requests", type=int, required=True)
    one.add_argument("--seconds", type=float, required=True)
    one.set_defaults(do=record)
    one = commands.add_parser("convert")
    one.add_argument("out", type=pathlib.Path)
    one.add_argument("trace", type=pathlib.Path)
    one.set_defaults(do=convert)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
