#!/usr/bin/env python3
"""Requests of several CSV traces with the same columns in turns, on standard output.

turns.py REQUESTS_A_TURN TRACE.csv...

Each trace keeps its own order. Objects of different traces are different ones, and times go on.
"""

import csv
import itertools
import sys


def main():
    turn, paths = int(sys.argv[1]), sys.argv[2:]
    files = [open(path, newline="", encoding="utf-8") for path in paths]
    readers = [csv.DictReader(file) for file in files]
    out = csv.DictWriter(sys.stdout, readers[0].fieldnames)
    out.writeheader()
    time, left = 0, list(enumerate(readers))
    while left:
        for item in list(left):
            number, reader = item
            rows = list(itertools.islice(reader, turn))
            if not rows:
                left.remove(item)
            for row in rows:
                time += 1000
                row["time_ns"] = time
                row["object"] = f"{number}/{row['object']}"
                out.writerow(row)


main()
