#!/usr/bin/env python3
"""Which pages MariaDB calls safe before it has synced them, from logs of strace.

    STRACE=DIR evaluation/kill9/power.sh --database mariadb --plain --only kill --rounds 9 --seed 81
    evaluation/kill9/unsynced.py DIR/*

DIR must be writable by the database's user, and takes some MiB for each start of the server.
InnoDB's checkpoint says that older log is not needed. It is wrong to make one while a page that was
written, and counts as clean, is not synced. Listed is each write of a tablespace that lives on, of
which a checkpoint was made more than --seconds later and no sync of its file began in between.
Prints file, page, how many checkpoints, and after how long the file was synced.
"""
import argparse
import re

CHECKPOINTS = (4096, 8192)
PAGE = 16384


def events(path):
    """(start, end, call) of each call that ended, in order of their starts."""
    begun, ended = {}, []
    with open(path, errors="replace") as log:
        for line in log:
            found = re.match(r"(\d+)\s+([\d.]+) (.*)", line)
            if not found:
                continue
            thread, at, call = found[1], float(found[2]), found[3]
            resumed = re.match(r"<\.\.\. \w+ resumed>(.*)", call)
            if " <unfinished" in call:
                begun[thread] = (at, call.split(" <unfinished")[0])
            elif resumed and thread in begun:
                start, head = begun.pop(thread)
                ended.append((start, at, head + resumed[1]))
            else:
                ended.append((at, at, call))
    return sorted(ended)


def short(path):
    return "/".join(path.split("/")[-2:])


def read(path):
    """Writes and syncs by file, whatever it was called when; checkpoints; when files went."""
    files, names, writes, syncs, checkpoints, gone = {}, {}, [], {}, [], {}

    def number(name):
        if name not in files:
            files[name] = len(names)
            names[files[name]] = name
        return files[name]

    for start, end, call in events(path):
        if found := re.match(r"pwrite64\(\d+<([^>]*)>, .*?, (\d+), (\d+)\)?\s*=\s*\d", call):
            name, offset = short(found[1]), int(found[3])
            if name.endswith("ib_logfile0") and offset in CHECKPOINTS:
                checkpoints.append(start)
            elif name.endswith(".ibd"):
                writes.append((end, number(name), offset // PAGE))
        elif found := re.match(r"f(?:data)?sync\(\d+<([^>]*)>\)?\s*=\s*0", call):
            syncs.setdefault(number(short(found[1])), []).append((start, end))
        elif found := re.match(r'rename\("([^"]*)", "([^"]*)"\)?\s*=\s*0', call):
            file = number(short(found[1]))
            files.pop(short(found[1]))
            files[short(found[2])] = file
            names[file] += " -> " + found[2].split("/")[-1]
        elif found := re.match(r'unlink\("([^"]*)"\)?\s*=\s*0', call):
            gone[files.pop(short(found[1]), None)] = start
    return names, writes, syncs, checkpoints, gone


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("logs", nargs="+")
    arguments = parser.parse_args()
    for log in arguments.logs:
        names, writes, syncs, checkpoints, gone = read(log)
        print(f"{log}: {len(writes)} pages written, {len(checkpoints)} checkpoints")
        for written, file, page in writes:
            if file in gone or "#sql-ib" in names[file]:
                continue  # gone, or about to go
            synced = [end for start, end in syncs.get(file, []) if start >= written]
            until = synced[0] if synced else float("inf")
            early = [at for at in checkpoints if written < at < until]
            if early and early[-1] - written > arguments.seconds:
                after = f"after {until - written:.2f} s" if synced else "never"
                print(f"  {names[file]} page {page}: {len(early)} checkpoints, synced {after}")


main()
