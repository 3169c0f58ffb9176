#!/usr/bin/env python3
"""Results of the suites: SUITE.MODE.tsv with a test a line (name, pass|fail|skip, remark).

    results.py verdict DIR SUITE [LABEL]   what fails on a mount and passes on the plain directory;
                                           exit 1 if anything does
    results.py table DIR...                the table, as Markdown; a note.md in a DIR says more

Lines that begin with # are remarks about a run. The last line of a test counts. A test that passes
on the plain directory and is missing on the mount failed there, unless the run on the mount says
`#cut` (the time given to it was over) or the test was skipped.
"""

import pathlib
import re
import sys

MODES = ("through", "back")
SHOWN = 25


class Run:
    def __init__(self, path):
        self.tests, self.remarks = {}, {}
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("#"):
                key, _, value = line[1:].partition("\t")
                self.remarks[key] = value
            elif line:
                name, status, remark = (line.split("\t", 2) + ["", ""])[:3]
                self.tests[name] = (status, remark)

    def count(self, *statuses):
        return sum(status in statuses for status, _ in self.tests.values())


def load(directories):
    """Suite -> mode -> run; what a later directory has of a suite's mode replaces the former."""
    runs = {}
    for directory in directories:
        for path in sorted(pathlib.Path(directory).glob("*.tsv")):
            suite, mode, _ = path.name.rsplit(".", 2)
            runs.setdefault(suite, {})[mode] = Run(path)
    return runs


def differences(plain, mount):
    """Tests that fail on the mount and do not fail on the plain directory, with a remark."""
    found = []
    for name, (status, remark) in mount.tests.items():
        if status == "fail" and plain.tests.get(name, ("pass", ""))[0] != "fail":
            found.append((name, remark))
    # A run that says how long it took came to its end.
    if "cut" not in mount.remarks and "seconds" in mount.remarks:
        for name, (status, _) in plain.tests.items():
            if status == "pass" and name not in mount.tests:
                found.append((name, "did not run"))
    return sorted(found)


def verdict(directory, suite, label):
    bad, seen = False, False
    for name, modes in sorted(load([directory]).items()):
        part, _, of = name.partition("@")
        if of != label or not (part == suite or part.startswith(suite + "-")):
            continue
        plain = modes.get("plain")
        for mode in ("plain",) + MODES:
            if mode not in modes:
                continue
            run = modes[mode]
            ran = run.count("pass", "fail")
            seen = True
            print(f"{name}, {mode}: {run.count('pass')} of {ran} tests passed"
                  f" ({run.remarks.get('seconds', '?')} s)")
            if ran == 0:
                bad = True
            if mode == "plain":
                continue
            # Without a plain run, every failure counts.
            found = differences(plain or Run(pathlib.Path("/dev/null")), run)
            for test, remark in found[:SHOWN]:
                print(f"  fails on the mount only: {test}  {remark}")
            if len(found) > SHOWN:
                print(f"  and {len(found) - SHOWN} more")
            bad = bad or bool(found)
    if not seen:
        print(f"{suite}: no results in {directory}")
    return 1 if bad or not seen else 0


def builds(modes):
    """What the mounts of a suite ran: a build, or each mode's when they differ."""
    of = {mode: modes[mode].remarks.get("build", "not noted") for mode in MODES if mode in modes}
    if len(set(of.values())) <= 1:
        return next(iter(of.values()), "")
    return ", ".join(f"{mode} {build}" for mode, build in of.items())


HEAD = """# Suites that others wrote, on a plain directory and on mounts

`evaluation/suites/all.sh` runs them; this page is what `evaluation/suites/results.py` made of the
results. Each suite runs on a plain directory, on a mount in write-through and on one in write-back,
with a cache far smaller than what the suite writes, so that pages move between memory, flash and
base all the time. A test that is skipped is not counted. "(the mount)" is a test of ours: it ends
by `umount` with exit code 0, without a panic and without an error in its log. So are "(the cache)":
`check --data` finds it sound and without dirty pages, and those of what base holds once nothing is
mounted. A build is named by the first digits of the program's MD5.
"""


def table(directories):
    runs = load(directories)
    print(HEAD)
    mounts = sorted({run.remarks["mount"] for modes in runs.values() for run in modes.values()
                     if run.remarks.get("mount")})
    print("Mounts: " + "; ".join(mounts) + ".\n")
    for directory in directories:
        note = pathlib.Path(directory) / "note.md"
        if note.exists():
            print(note.read_text())
    print("| suite | base | tests run: plain | passed | failed: plain | through | back "
          "| fails on a mount only | build |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---|")
    details, plainly = [], []
    for suite, modes in sorted(runs.items()):
        some = modes.get("plain") or next(iter(modes.values()))
        plain = modes.get("plain")
        cells, only = [], set()
        for mode in MODES:
            if mode not in modes:
                cells.append("–")
                continue
            run = modes[mode]
            unfinished = "" if "seconds" in run.remarks else " (unfinished)"
            if "cut" in run.remarks:
                unfinished = " (time over)"
            cells.append(f"{run.count('fail')} of {run.count('pass', 'fail')}{unfinished}")
            if plain:
                for test, remark in differences(plain, run):
                    only.add(test)
                    # Paths are those of the machine's scratch.
                    remark = re.sub(r"(/[^/\s]+){2,}/", "…/", remark)
                    details.append((suite, mode, f"`{test}`", remark[:120]))
        if plain:
            plainly += [(suite, t) for t, (s, _) in sorted(plain.tests.items()) if s == "fail"]
            first = [str(plain.count("pass", "fail")), str(plain.count("pass")),
                     str(plain.count("fail"))]
        else:
            first = ["–"] * 3
        print(f"| {suite} | {some.remarks.get('base', '')} | " + " | ".join(first + cells)
              + f" | {len(only)} | {builds(modes)} |")
    print("\n## Fails on a mount, passes on the plain directory\n")
    if details:
        print("| suite | mode | tests | |\n|---|---|---|---|")
        alike = {}
        for suite, mode, test, remark in details:
            alike.setdefault((suite, mode, remark), []).append(test)
        for (suite, mode, remark), tests in alike.items():
            row = (suite, mode, ", ".join(tests), remark)
            print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    else:
        print("None.")
    print("\n## Fails on the plain directory\n")
    by_suite = {}
    for suite, test in plainly:
        by_suite.setdefault(suite, []).append(test)
    for suite, tests in by_suite.items():
        print(f"- {suite}: " + ", ".join(f"`{t}`" for t in tests))
    if not by_suite:
        print("None.")


def main():
    if len(sys.argv) >= 4 and sys.argv[1] == "verdict":
        sys.exit(verdict(sys.argv[2], sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else ""))
    if len(sys.argv) >= 3 and sys.argv[1] == "table":
        table(sys.argv[2:])
        return
    sys.exit(__doc__)


if __name__ == "__main__":
    main()
