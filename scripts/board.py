"""Writes the tables of docs/bench.md: the board of every entry of bench/encoders-v1, by what its
attacker has, and whether the bench's new attacks find more than those that led before.

python scripts/board.py
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedmia.bench.board import BoardRow, difference, make_row
from fedmia.bench.entries import BenchEntry, read_entries
from fedmia.bench.scoring import BOTH, Entrant, TargetScores, describe_key
from fedmia.bench.targets import Target, bench_folder, read_targets
from fedmia.options import registry
from fedmia.options.errors import InputError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "bench.md"
BENCH = "encoders-v1"
NEW = ("bavaria", "semi-rounds", "stacking", "stacking-white", "stacking-rounds", "dov4mm")
LEAST = 2  # targets of a difference: one is one encoder, or one federation, of one seed
BEFORE = ("lira", "rmia", "lira-rounds", "rmia-rounds", "similarity")
DIFFERENCES = "| New attack | Against | Targets | Difference of mean AUC |  |"
HEAD = "| Attack | Targets | AUC | TPR at 1 % FPR | Queries | Seconds | Found in traps |"


def write_label(entry: BenchEntry) -> str:
    """An attack in a table, with its options and what is to be said of it."""
    return entry.label.replace(entry.attack, f"`{entry.attack}`", 1)


def write_row(entry: BenchEntry, row: BoardRow, plain: int) -> str:
    """A line of a table."""
    trapped = ", ".join(name.removeprefix("trap-") for name in row.trapped)
    trapped = trapped or ("-" if len(row.targets) > plain else "none run")
    return (
        f"| {write_label(entry)} | {plain} | {row.auc.marked if row.auc else ''} | "
        f"{row.tpr} | {row.queries:,} | {row.seconds:.0f} | {trapped} |"
    )


def read_bench() -> tuple[dict[str, Target], list[BenchEntry]]:
    """The targets by name, and every entry."""
    folder = bench_folder(BENCH)
    targets = {target.name: target for target in read_targets(folder)}
    return targets, [*read_entries(folder, [*targets.values()])]


def board(targets: Mapping[str, Target], entries: Sequence[BenchEntry]) -> str:
    """The tables, and why some attacks are in none."""
    tables, missing = defaultdict[str, list[tuple[float, str]]](list), list[str]()
    for entry in entries:
        for key in entry.by_key:
            scores = entry.scores(key)
            row = make_row(scores, targets)
            if row.auc is None:
                reasons = {why for why in entry.by_key[key].values() if isinstance(why, str)}
                missing.append(f"`{entry.attack}` ({min(reasons, default='no targets')})")
                continue
            first = next(iter(scores.values()))
            threat = f"{first.access.replace('_', ' ')}, {first.vantage}, {describe_key(key)}"
            plain = sum(not targets[name].trap for name in scores)
            tables[threat].append((-row.auc.value, write_row(entry, row, plain)))
    for name in sorted({*registry.names("attack")} - {entry.attack for entry in entries}):
        try:
            Entrant.of({"name": name}, BOTH, shadows=4)
            missing.append(f"`{name}` (not run yet)")
        except InputError as error:
            missing.append(f"`{name}` ({str(error).removeprefix(name).lstrip()})")
    parts = list[str]()
    for threat, rows in sorted(tables.items()):
        rule = "|" + " --- |" * (HEAD.count("|") - 1)
        parts.append("\n".join([f"### {threat}", "", HEAD, rule, *(r for _, r in sorted(rows))]))
    if missing:
        parts.append("Without a row: " + "; ".join(missing) + ".")
    return "\n\n".join(parts)


def differences(targets: Mapping[str, Target], entries: Sequence[BenchEntry]) -> str:
    """The table of NEW against BEFORE, where both have LEAST targets or more; one correction."""
    scores, labels = dict[str, dict[str, TargetScores]](), dict[str, str]()
    for entry in entries:
        keys = sorted((key for key in entry.by_key if entry.scores(key)), key=lambda k: k != BOTH)
        if entry.attack in (*NEW, *BEFORE) and keys:
            scores[entry.attack], labels[entry.attack] = entry.scores(keys[0]), write_label(entry)
    pairs = [(new, old) for new in NEW for old in BEFORE if {new, old} <= scores.keys()]
    plain = {name for name, target in targets.items() if not target.trap}
    pairs = [(a, b) for a, b in pairs if len(scores[a].keys() & scores[b].keys() & plain) >= LEAST]
    rows = [DIFFERENCES, "|" + " --- |" * (DIFFERENCES.count("|") - 1)]
    for a, b in pairs:
        paired = difference(scores[a], scores[b], targets, len(pairs))
        assert paired is not None
        gap, count = paired
        says = "no difference shown" if not gap.excludes(0) else "more" if gap.low > 0 else "less"
        rows.append(f"| {labels[a]} | {labels[b]} | {count} | {gap} | {says} |")
    return "\n".join(rows)


def main() -> None:
    """Write the page anew."""
    text, bench = PAGE.read_text(encoding="utf-8"), read_bench()
    for name, table in (("board", board(*bench)), ("differences", differences(*bench))):
        marks = rf"(<!-- {name} -->\n).*?(\n<!-- end of {name} -->)"
        assert re.search(marks, text, flags=re.DOTALL), name
        text = re.sub(marks, rf"\1\n{table}\n\2", text, flags=re.DOTALL)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
