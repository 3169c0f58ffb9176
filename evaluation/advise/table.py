#!/usr/bin/env python3
"""The table of evaluation/results/advise.md from what check.sh wrote into a directory."""

import json
import sys
from pathlib import Path

QUESTIONS = {"none": "no tier", "grow": "10 %", "keep": "10 %, kept"}


def rows(directory):
    """Capture, question, number of the line, line and its check; no line where advice was refused."""
    names = sorted({file.name.split(".")[0] for file in directory.iterdir()})
    for name in names:
        for question in QUESTIONS:
            file = directory / f"{name}.{question}.json"
            if not file.exists():
                yield name, question, 0, None, None
                continue
            lines = json.loads(file.read_text())
            checks = json.loads((directory / f"{name}.{question}.checked.json").read_text())
            if not lines:
                yield name, question, 0, {}, None
            for number, (line, check) in enumerate(zip(lines, checks), 1):
                yield name, question, number, line, check


def what(line):
    if line["kind"] == "SIZE":
        return f"SIZE {line['then']['flash_bytes'] / 2**20:.0f} MiB"
    return line["kind"] + " " + line["id"].split(":", 1)[1]


def main():
    print("| capture | tier now | line | advice | said | gained | held |")
    print("|---|---|---:|---|---:|---:|---|")
    first, later, refused = [], [], []
    for name, question, number, line, check in rows(Path(sys.argv[1])):
        if line is None:
            refused.append(name)
            continue
        start = f"| {name} | {QUESTIONS[question]} | "
        if not line:
            print(start + "– | nothing | | | |")
            continue
        said, gained = check["predicted"], check["observed"]
        (first if number == 1 else later).append((question, check["held"], gained["percent"] > 0))
        print(
            f"{start}{number} | {what(line)} | {said['percent']:.1f} ± {said['plus_minus']:.1f} % "
            f"| {gained['percent']:.1f} % | {'yes' if check['held'] else '**no**'} |"
        )
    print()
    for question, words in QUESTIONS.items():
        of = [row for row in first if row[0] == question]
        print(
            f"- First lines, {words}: {sum(held for _, held, _ in of)} of {len(of)} gained what they "
            f"said within its uncertainty; {sum(gain for *_, gain in of)} of {len(of)} gained."
        )
    print(f"- Later lines: {sum(held for _, held, _ in later)} of {len(later)} held.")
    if refused:
        print(f"- Refused, too little evidence in the half: {', '.join(sorted(set(refused)))}.")


main()
