"""Writes the tables of a bench's page: the board of every entry by what its attacker has, AUCs by
method and level of leak, and the differences of attacks from the plainest; and a file of results,
AUCs by target, from which tools/docs_numbers.py writes others.

    python tools/board.py [encoders-v1]
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmia.bench.board import LOW, BoardRow, Estimate, TargetRow, difference, would_show
from fedmia.bench.entries import BenchEntry, read_entries
from fedmia.bench.scoring import BOTH, Entrant, TargetScores, describe_key
from fedmia.bench.targets import MISMATCH, Target, bench_folder, read_targets
from fedmia.settings import registry
from fedmia.settings.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
LEAST = 2  # targets of a difference: one is one encoder, or one federation, of one seed
PLAIN = "similarity"
DIFFERENCES = "| Attack | Targets | Difference of mean AUC | Would show (80 %) |  |"
HEAD = "| Attack | Targets | AUC | {rates} | Queries | Seconds | Found in traps |{mismatch}"
LEVELS = ("weak", "overfitted")


@dataclass(frozen=True)
class Place:
    """Where the numbers of a bench go.

    Attributes:
        page: of the docs.
        results: file of AUCs by target.
    """

    page: Path
    results: Path


PLACES = {
    name: Place(ROOT / "docs" / page, ROOT / f"research/results/{name}.json")
    for name, page in (("encoders-v1", "bench_v1.md"), ("encoders-v2", "bench.md"))
}


def write_label(entry: BenchEntry) -> str:
    """An attack in a table, with its options and what is to be said of it."""
    return entry.label.replace(entry.attack, f"`{entry.attack}`", 1)


def rates_of(targets: Mapping[str, Target], entries: Sequence[BenchEntry]) -> list[float]:
    """The false-positive rates at which some row has a TPR, the highest first."""
    rows = (one.scores(key) for one in entries for key in one.by_key)
    return sorted({r for s in rows for r in BoardRow(s, targets).tpr}, reverse=True)


def write_row(
    entry: BenchEntry, row: BoardRow, plain: int, rates: Sequence[float] = (LOW,),
    mismatch: str | None = None,
) -> str:  # fmt: skip
    """A line of a table."""
    trapped = ", ".join(name.removeprefix("trap-") for name in row.trapped)
    trapped = trapped or ("-" if len(row.targets) > plain else "none run")
    tprs = " | ".join(
        f"{row.tpr[rate]} at {row.fpr[rate].value:.3f}".replace("at 0", "at ")
        if rate in row.tpr
        else ""
        for rate in rates
    )
    seconds = "" if row.seconds is None else f"{row.seconds:.0f}"
    line = (
        f"| {write_label(entry)} | {plain} | {row.auc.marked if row.auc else ''} | "
        f"{tprs} | {row.queries:,} | {seconds} | {trapped} |"
    )
    if mismatch is not None:
        line += f" {row.targets[mismatch].auc.marked if mismatch in row.targets else ''} |"
    return line


def read_bench(bench: str = "encoders-v1") -> tuple[dict[str, Target], list[BenchEntry]]:
    """The targets by name, and every entry; of one attack that with fewer options first."""
    folder = bench_folder(bench)
    targets = {target.name: target for target in read_targets(folder)}
    entries = read_entries(folder, [*targets.values()])
    return targets, sorted(entries, key=lambda one: (one.attack, len(one.options)))


def board(targets: Mapping[str, Target], entries: Sequence[BenchEntry]) -> str:
    """The tables, and why some attacks are in none."""
    tables, missing = defaultdict[str, list[tuple[float, str]]](list), list[str]()
    rates = rates_of(targets, entries)
    mismatch = next((name for name, one in targets.items() if one.trap == MISMATCH), None)
    for entry in entries:
        for key in entry.by_key:
            scores = entry.scores(key)
            row = BoardRow(scores, targets)
            if row.auc is None:
                reasons = {why for why in entry.by_key[key].values() if isinstance(why, str)}
                missing.append(f"`{entry.attack}` ({min(reasons, default='no targets')})")
                continue
            first = next(iter(scores.values()))
            threat = f"{first.access.replace('_', ' ')}, {first.vantage}, {describe_key(key)}"
            plain = sum(not targets[name].trap for name in scores)
            line = write_row(entry, row, plain, rates, mismatch)
            tables[threat].append((-row.auc.value, line))
    for name in sorted({*registry.names("attack")} - {entry.attack for entry in entries}):
        try:
            Entrant.of({"name": name}, BOTH, shadows=4)
            missing.append(f"`{name}` (not run yet)")
        except InputError as error:
            missing.append(f"`{name}` ({str(error).removeprefix(name).lstrip()})")
    heads = " | ".join(f"TPR at {100 * rate:g} % FPR" for rate in rates)
    head = HEAD.format(rates=heads, mismatch=" Mismatch |" * (mismatch is not None))
    parts = list[str]()
    for threat, rows in sorted(tables.items()):
        rule = "|" + " --- |" * (head.count("|") - 1)
        parts.append("\n".join([f"### {threat}", "", head, rule, *(r for _, r in sorted(rows))]))
    if missing:
        parts.append("Without a row: " + "; ".join(missing) + ".")
    return "\n\n".join(parts)


def methods(targets: Mapping[str, Target], entries: Sequence[BenchEntry]) -> str:
    """A table of AUCs by method, weak and overfitted, of the attacker of each that knows most; the
    widest of their simultaneous intervals in the last column."""
    names = {
        (str(one.card["method"]), str(one.card["level"])): list[str]() for one in targets.values()
    }
    for name, one in targets.items():
        if not one.trap:
            names[str(one.card["method"]), str(one.card["level"])].append(name)
    kinds = list(dict.fromkeys(method for method, level in names if level in LEVELS))
    head = "| Attack | " + " | ".join(f"`{one}`" for one in kinds) + " | Within |"
    lines = [head, "|" + " --- |" * (len(kinds) + 2)]
    for attack, scores in scores_of(entries).items():
        row, cells, widest = BoardRow(scores, targets), list[str](), 0.0
        for kind in kinds:
            pair = list[str]()
            for level in LEVELS:
                own = [row.targets[n].auc for n in names.get((kind, level), ()) if n in row.targets]
                pair.append(f"{sum(a.value for a in own) / len(own):.2f}"[1:] if own else "")
                widest = max([widest, *(max(a.high - a.value, a.value - a.low) for a in own)])
            cells.append(", ".join(filter(None, pair)))
        if any(cells):
            lines.append(f"| `{attack}` | {' | '.join(cells)} | ±{widest:.2f} |".replace("±0", "±"))
    return "\n".join(lines)


def gaps(
    targets: Mapping[str, Target], entries: Sequence[BenchEntry]
) -> dict[str, tuple[Estimate, int]]:
    """Of every attack the difference of its mean AUC from PLAIN's, and over how many targets, where
    both have LEAST targets or more; from the highest down, with one correction."""
    scores = scores_of(entries)
    plain = {name for name, target in targets.items() if not target.trap} & scores[PLAIN].keys()
    names = [one for one in scores if one != PLAIN and len(scores[one].keys() & plain) >= LEAST]
    pairs = dict[str, tuple[Estimate, int]]()
    for name in names:
        paired = difference(scores[name], scores[PLAIN], targets, len(names))
        assert paired is not None
        pairs[name] = paired
    return dict(sorted(pairs.items(), key=lambda one: (-one[1][0].value, one[0])))


def differences(targets: Mapping[str, Target], entries: Sequence[BenchEntry]) -> str:
    """The table of `gaps`."""
    labels, rows = {entry.attack: write_label(entry) for entry in entries}, list[str]()
    pairs = gaps(targets, entries)
    for name, (gap, count) in pairs.items():
        says = "no difference shown" if not gap.excludes(0) else "more" if gap.low > 0 else "less"
        least = f"{would_show(gap, len(pairs)):.2f}"[1:]
        rows.append(f"| {labels[name]} | {count} | {gap} | {least} | {says} |")
    head = [DIFFERENCES, "|" + " --- |" * (DIFFERENCES.count("|") - 1)]
    return "\n".join([*head, *rows, "", f"These {len(pairs)} intervals hold together."])


def scores_of(entries: Sequence[BenchEntry]) -> dict[str, dict[str, TargetScores]]:
    """The scores of each attack by target, of the attacker that knows most."""
    return {
        entry.attack: entry.scores(min(keys, key=lambda key: (key != BOTH, key)))
        for entry in entries
        if (keys := [key for key in entry.by_key if entry.scores(key)])
    }


def by_target(targets: Mapping[str, Target], entries: Sequence[BenchEntry]) -> dict[str, Any]:
    """What attacks find in each target without a trap.

    Args:
        targets: by name.
        entries: those of the board.

    Returns:
        `family`, the intervals that hold together; `targets`: of each its `name`, how many
        `members` and `nonmembers` are scored, and `attacks` from the highest AUC down, each with
        `auc` and its interval; `differences` from PLAIN, as `gaps`; `rows`: of each row of the
        board its attacker, its attack, `auc`, and `tpr` by false-positive rate.
    """
    scores = scores_of(entries)
    plain = [name for name, target in targets.items() if not target.trap]
    family = sum(name in own for own in scores.values() for name in plain)
    rows = []
    for name in plain:
        own = {attack: s[name] for attack, s in scores.items() if name in s}
        aucs = {attack: TargetRow(one, family).auc for attack, one in own.items()}
        attacks = sorted(aucs, key=lambda attack: -aucs[attack].value)
        sides = next(iter(own.values()))
        sizes = {"members": len(sides.members), "nonmembers": len(sides.nonmembers)}
        listed = [{"name": a, "auc": in_json(aucs[a])} for a in attacks]
        rows.append({"name": name, **sizes, "attacks": listed})
    pairs = gaps(targets, entries)
    differences = [
        {"attack": attack, "targets": count, "gap": in_json(gap),
         "would_show": round(would_show(gap, len(pairs)), 5)}
        for attack, (gap, count) in pairs.items()
    ]  # fmt: skip
    lines = list[dict[str, Any]]()
    for entry, key in ((one, key) for one in entries for key in one.by_key):
        own = entry.scores(key)
        row = BoardRow(own, targets)
        if row.auc is not None:
            first = next(iter(own.values()))
            lines.append({
                "attack": entry.attack, "access": first.access, "vantage": first.vantage,
                "knows": key, "targets": len({*own} & {*plain}), "auc": in_json(row.auc),
                "tpr": {f"{rate:g}": in_json(one) for rate, one in row.tpr.items()},
            })  # fmt: skip
    return {"family": family, "targets": rows, "differences": differences, "rows": lines}


def in_json(estimate: Estimate) -> dict[str, Any]:
    """As `tools/docs_numbers.py` reads it; five digits, as processors differ in the last ones."""
    ends = [round(estimate.low, 5), round(estimate.high, 5)]
    return {"mean": round(estimate.value, 5), "ci": ends}


def main(bench: str = "encoders-v1") -> None:
    """Write the page and the results of a bench anew."""
    place, content = PLACES[bench], read_bench(bench)
    text = place.page.read_text(encoding="utf-8")
    place.results.write_text(json.dumps(by_target(*content), indent=1) + "\n", encoding="utf-8")
    for name, write in (("board", board), ("methods", methods), ("differences", differences)):
        marks = rf"(<!-- {name} -->\n).*?(\n<!-- end of {name} -->)"
        assert re.search(marks, text, flags=re.DOTALL), name
        text = re.sub(marks, rf"\1\n{write(*content)}\n\2", text, flags=re.DOTALL)
    place.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
