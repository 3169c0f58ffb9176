"""The tables of evaluation/results/unseen.md, from what unseen.sh simulated."""

import json
import pathlib
import statistics
import sys

SHOWN = ["lru", "arc", "tac", "clic", "value", "auto"]
FINALISTS = ["value", "value-time", "clic", "arc", "tac", "lru"]


def cells(directory):
    """Name, slots and results by policy of each trace and size."""
    for path in sorted(pathlib.Path(directory).glob("*.json")):
        results = json.loads(path.read_text())
        for slots in sorted({one["capacity_pages"] for one in results}):
            yield path.stem, slots, {
                one["policy"]: one for one in results if one["capacity_pages"] == slots
            }


def main():
    lines, shortfalls, times = [], {}, []
    for name, slots, by_policy in cells(sys.argv[1]):
        hits = {policy: 100 * (one["read_hit_ratio"] or 0) for policy, one in by_policy.items()}
        optimum = hits.pop("opt-bypass")
        hits.pop("opt")
        # Of single policies: `auto` is what is judged.
        best = max((policy for policy in hits if policy != "auto"), key=hits.get)
        for policy, ratio in hits.items():
            shortfalls.setdefault(policy, []).append(max(hits[best] - ratio, 0.0))
        base = {policy: by_policy[policy]["base_device_ms"] for policy in hits}
        least = min(FINALISTS, key=base.get)
        times.append(base["auto"] / base[least])
        shown = " | ".join(f"{hits[policy]:.1f}" for policy in SHOWN)
        lines.append(
            f"| {name} | {slots} | {shown} | {hits[best]:.1f} ({best}) | {optimum:.1f} "
            f"| {times[-1]:.2f} ({least}) |"
        )

    print("| policy | points behind the best, mean | most | cells within a point of it |")
    print("|---|---:|---:|---:|")
    for policy, behind in sorted(shortfalls.items(), key=lambda item: sum(item[1])):
        within = sum(points <= 1 for points in behind)
        mean = sum(behind) / len(behind)
        print(f"| {policy} | {mean:.2f} | {max(behind):.1f} | {within} of {len(behind)} |")
    mean, median = statistics.mean(times), statistics.median(times)
    print(
        f"\nBase's time below `auto`, times that below the finalist with the least: {mean:.3f} on "
        f"the mean, {median:.3f} median, {max(times):.3f} at most.\n"
    )
    print(f"| trace | slots | {' | '.join(SHOWN)} | best single | opt-bypass | base's time |")
    print("|---|---:|" + "---:|" * (len(SHOWN) + 3))
    print("\n".join(lines))


main()
