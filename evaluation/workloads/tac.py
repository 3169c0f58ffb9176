#!/usr/bin/env python3
"""The tables of ods.md and zipf.md: simulates the trace that ods.sh or zipf.sh recorded as the TAC
paper (T, section 4.2) does, and prints them.

    tac.py ods|zipf TRACES OUT THERMOCLINE
"""

import sys

from sim import Runs, percent, table

POLICIES = {
    "ods": ["lru", "arc", "tac", "value", "opt"],
    "zipf": ["lru", "clock", "arc", "tac", "tac:paper", "clic", "value", "auto", "opt"],
}
MODELS = {
    "hdd": ("T's disk and flash card", ("--base", "hdd")),
    "hdd-alone": ("the same, each run of pages read alone", ("--base", "hdd", "--bridge", "0")),
}
PAPER = {
    "ods": {"tac/arc": "about 1/2", "tac/lru": "about 1/3"},
    "zipf": {"tac/arc": "“much better”", "tac/lru": "“much better”"},
}


def main() -> None:
    kind, traces, out, program = sys.argv[1:]
    runs = Runs(program, traces, out)
    policies = POLICIES[kind]
    print(f"PostgreSQL {runs.version}, database {runs.bytes / 2**20:.0f} MiB, trace of "
          f"{runs.distinct(kind)} different pages")
    for share in (2.13, 10):
        slots = runs.pages(share)
        for name, (what, devices) in MODELS.items():
            rows = runs.simulate(f"{share}-{name}", [kind], "--flash", f"{slots}p", "--policy",
                                 ",".join(policies), "--flash-device", "iodrive", *devices)
            ssd = runs.simulate("ssd", [kind], "--flash", "1p", "--policy", "lru", "--base", "ssd")["lru"]
            none = rows["lru"]["elapsed_ms"] * rows["lru"]["speedup"]
            print(f"\n### Flash {share} % of the database ({slots} pages), {what}\n")
            lines = [["base only", "–", "–", f"{none / 1000:.1f}", "1.00", "1.0", "–"]]
            for policy in policies:
                row = rows[policy]
                time = row["elapsed_ms"]
                lines.append([policy, percent(row["read_hits"], row["reads"]), row["flash_writes"],
                              f"{time / 1000:.1f}", f"{time / none:.2f}", f"{none / time:.1f}",
                              f"{rows['tac']['elapsed_ms'] / time:.2f}"])
            time = ssd["elapsed_ms"] * ssd["speedup"]
            lines.append(["all on an SSD", "–", "–", f"{time / 1000:.1f}", f"{time / none:.2f}", f"{none / time:.1f}", "–"])
            print(table(["policy", "read hits %", "pages written to flash", "I/O time, s", "of base only",
                         "× base only", "TAC's time / its"], lines))
    for name, value in PAPER[kind].items():
        print(f"\npaper: {name} {value}")


if __name__ == "__main__":
    main()
