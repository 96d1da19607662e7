"""Writes the board of docs/bench.md: every entry of bench/encoders-v1, by what its attacker has.

python scripts/board.py
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from fedmia.bench.board import BoardRow, make_row
from fedmia.bench.entries import BenchEntry, read_entries
from fedmia.bench.targets import bench_folder, read_targets

PAGE = Path(__file__).resolve().parents[1] / "docs" / "bench.md"
BENCH = "encoders-v1"
HEAD = "| Attack | Targets | AUC | TPR at 1 % FPR | Queries | Seconds | Found in traps |"


def write_row(entry: BenchEntry, row: BoardRow, plain: int) -> str:
    """A line of a table."""
    trapped = ", ".join(name.removeprefix("trap-") for name in row.trapped) or "-"
    return (
        f"| {entry.label.replace(entry.attack, f'`{entry.attack}`', 1)} | {plain} | {row.auc} | "
        f"{row.tpr} | {row.queries:,} | {row.seconds:.0f} | {trapped} |"
    )


def board() -> str:
    """The tables, and why some attacks are in none."""
    folder = bench_folder(BENCH)
    targets = {target.name: target for target in read_targets(folder)}
    tables, missing = defaultdict[str, list[tuple[float, str]]](list), list[str]()
    for entry in read_entries(folder, list(targets.values())):
        for key in entry.by_key:
            scores = entry.scores(key)
            row = make_row(scores, targets)
            if row.auc is None:
                reasons = {why for why in entry.by_key[key].values() if isinstance(why, str)}
                missing.append(f"`{entry.attack}` ({min(reasons, default='no targets')})")
                continue
            first = next(iter(scores.values()))
            threat = f"{first.access.replace('_', ' ')}, {first.vantage}, knows {key}"
            plain = sum(not targets[name].trap for name in scores)
            tables[threat].append((-row.auc.value, write_row(entry, row, plain)))
    parts = list[str]()
    for threat, rows in sorted(tables.items()):
        rule = "|" + " --- |" * (HEAD.count("|") - 1)
        parts.append("\n".join([f"### {threat}", "", HEAD, rule, *(r for _, r in sorted(rows))]))
    if missing:
        parts.append("Without a row: " + "; ".join(missing) + ".")
    return "\n\n".join(parts)


def main() -> None:
    """Write the page anew."""
    text = PAGE.read_text(encoding="utf-8")
    new = re.sub(
        r"(<!-- board -->\n).*?(\n<!-- end of board -->)",
        lambda marks: f"{marks[1]}\n{board()}\n{marks[2]}",
        text,
        flags=re.DOTALL,
    )
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
