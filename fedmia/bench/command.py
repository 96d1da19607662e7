"""An attack on the targets of a bench, as a result, and the command `fedmia bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmia.bench.board import REVERSED, BoardRow, Estimate, TargetRow, difference
from fedmia.bench.checks import check_entry
from fedmia.bench.entries import (
    BenchEntry,
    Machine,
    describe_machine,
    own_entry,
    read_entries,
    write_entry,
)
from fedmia.bench.scoring import (
    BOTH,
    NOTHING,
    Entrant,
    TargetScores,
    describe_key,
    score_target,
)
from fedmia.bench.targets import (
    RESULTS,
    Target,
    bench_folder,
    find_images,
    have_images,
    read_plan,
    read_targets,
)
from fedmia.cli.command import Invocation
from fedmia.data.images import ByteArray
from fedmia.report.publish import json_text
from fedmia.runtime.numerics import default_numerics
from fedmia.runtime.threads import limit_threads
from fedmia.settings.commands.bench import Bench
from fedmia.statistics.auc import one_score_count

LEFT_OUT = "not asked for, or --data names no source of their images, such as parquet:FILE"


@dataclass(frozen=True)
class BenchResult:
    """What an attack found on the targets of a bench.

    Attributes:
        version: of the bench.
        entrant: the attack.
        results: by target, its scores or why it has none.
        targets: by name.
        left_out: targets of the plan that have no result: not asked for, or no images.
        entries: stored scores of other attacks.
        machines: on which it was run, now or before.
    """

    version: str
    entrant: Entrant
    results: Mapping[str, TargetScores | str]
    targets: Mapping[str, Target]
    left_out: tuple[str, ...]
    entries: tuple[BenchEntry, ...]
    machines: tuple[Machine, ...] = ()

    @property
    def scores(self) -> dict[str, TargetScores]:
        """By target."""
        return {name: one for name, one in self.results.items() if not isinstance(one, str)}

    @cached_property
    def row(self) -> BoardRow:
        """Means over targets, traps, queries, seconds."""
        return BoardRow(self.scores, self.targets)

    @cached_property
    def differences(self) -> dict[str, tuple[Estimate, int]]:
        """Mean difference of the AUC to that of each stored attack, and the number of targets."""
        others, own = {}, (self.entrant.name, self.entrant.hash(), self.entrant.key)
        for entry in self.entries:
            keys = (self.entrant.key, NOTHING, BOTH, *sorted(entry.by_key))  # with shadows last
            key = next((k for k in keys if entry.scores(k)), None)
            if key is not None and (entry.attack, entry.source, key) != own:
                others[f"{entry.label}, {describe_key(key)}"] = entry.scores(key)
        pairs = {
            name: difference(self.scores, one, self.targets, len(others))
            for name, one in others.items()
        }
        return {name: pair for name, pair in pairs.items() if pair is not None}

    @property
    def about(self) -> dict[str, Any]:
        """What the table shows, as plain values."""
        row = self.row

        def describe(name: str, result: TargetScores | str) -> dict[str, Any]:
            if isinstance(result, str):
                return {"not_run": result}
            own = row.targets[name]
            rates = {"tpr": by_rate(own.tpr), "measured_fpr": by_rate(own.fpr)}
            cost = {"queries": result.queries, "seconds": result.seconds}
            return {"trap": self.targets[name].trap, "auc": vars(own.auc), **rates, **cost}

        return {
            "bench": self.version,
            "attack": self.entrant.name,
            "options": {**self.entrant.options},
            "attacker": describe_key(self.entrant.key),
            "auc": row.auc and vars(row.auc),
            "tpr": by_rate(row.tpr),
            "measured_fpr": by_rate(row.fpr),
            "queries": row.queries,
            "seconds": row.seconds,
            "targets": {name: describe(name, one) for name, one in self.results.items()},
            "found_in_traps": [*row.trapped],
            "left_out": [*self.left_out],
            "auc_differences": {
                name: {**vars(gap), "targets": n} for name, (gap, n) in self.differences.items()
            },
        }

    def __str__(self) -> str:
        """The row, its targets, and the differences, as text."""
        row, first = self.row, next(iter(self.scores.values()), None)
        lines = [f"{self.entrant.name} on {self.version}, {describe_key(self.entrant.key)}"]
        if first is not None:
            lines[0] += f", {first.access}, {first.vantage}"
        if row.auc is not None:
            own = sum(not self.targets[name].trap for name in self.scores)
            took = "" if row.seconds is None else f", {row.seconds:.1f} s a target"
            lines += [
                f"mean of {own} targets: AUC {row.auc.marked}, {list_rates(row)}; "
                f"{row.queries:,} queries a target{took}",
                "",
            ]
        for name, result in self.results.items():
            lines.append(f"  {name:28} {self._describe(name, result)}")
        if row.trapped:
            lines += ["", f"FOUND IN A TRAP, where nothing should be: {', '.join(row.trapped)}"]
        aucs = [row.auc, *(own.auc for own in row.targets.values())]
        if any(one is not None and one.reversed for one in aucs):
            lines += ["", f"reversed: {REVERSED}"]
        if self.left_out:
            without = ", ".join(self.left_out)
            lines += ["", f"left out ({LEFT_OUT}): {without}"]
        if self.differences:
            lines += [
                "",
                f"AUC less that of stored attacks, on the same images; all {len(self.differences)} "
                f"intervals hold together. They speak of these targets of {self.version} alone.",
            ]
            for name, (gap, n) in self.differences.items():
                lines.append(f"  {gap} over {n:2} targets  {name}")
        return "\n".join(lines)

    def _describe(self, name: str, result: TargetScores | str) -> str:
        if isinstance(result, str):
            return f"not run: {result}"
        row = self.row.targets[name]
        rates = list_rates(row)
        trap = f", trap: {self.targets[name].trap}" * bool(self.targets[name].trap)
        alike = one_score_count(result.members, result.nonmembers) is not None
        silent = ", one score for nearly all images: no answer" * alike
        return f"AUC {row.auc.marked}, {rates}{trap}{silent}"


def by_rate(rates: Mapping[float, Estimate]) -> dict[str, Any]:
    """Estimates by false-positive rate, as plain values."""
    return {f"{rate:g}": vars(one) for rate, one in rates.items()}


def list_rates(row: BoardRow | TargetRow) -> str:
    """The TPR by the FPR of its threshold, and the FPR that was measured there, as text."""
    return ", ".join(
        f"TPR at FPR {rate:g} {tpr} (measured {row.fpr[rate].value:.3g})"
        for rate, tpr in row.tpr.items()
    )


@default_numerics()
def evaluate(
    attack: Any, bench: str = "encoders-v1", *, data: Sequence[str] = (), knows: str = BOTH,
    shadows: int = 0, targets: Iterable[str] = (), cache: str | Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> BenchResult:  # fmt: skip
    """Run an attack on the targets of a bench.

        result = fedmia.bench.evaluate(MyAttack(), "encoders-v1")
        print(result)

    What is stored of it, by the same source and options, is read and not run again, but for what
    failed.

    Args:
        attack: a name, a class, or an instance with its options.
        bench: name of a bench of the clone, or its folder.
        data: sources of the targets' images, such as `parquet:FILE`; none: targets of digits
            alone.
        knows: `both` sides, or `nonmembers` alone.
        shadows: encoders that the attack trains on each target.
        targets: names of targets; none: all.
        cache: folder that keeps trained shadows; None: nowhere.
        say: takes a line after each target, and one where the attacker knows less than `knows`.

    Returns:
        The result.

    Raises:
        InputError: a wrong name, a damaged target, or an attack that cannot take part.
    """
    entrant, folder = Entrant.of(attack, knows, shadows), bench_folder(bench)
    if knows != entrant.knows:
        known = "has the known images of both sides, and not their truth"
        say(f"{entrant.name} learns from no truth: its attacker {known}")
    every, only = read_targets(folder), tuple(targets)
    chosen = read_targets(folder, only) if only else every
    entries = tuple(read_entries(folder, every))
    stored = next((one for one in entries if one.attack == entrant.name
                   and one.source == entrant.hash()), None)  # fmt: skip
    ready = {} if stored is None else stored.done(entrant.key)
    waiting = [one for one in chosen if one.name not in ready]
    images: Mapping[str, ByteArray] = find_images(waiting, data)
    waiting = have_images(waiting, images)
    for target in waiting:
        target.check_files()
    here = [one for one in chosen if one.name in ready or one in waiting]
    results = dict[str, TargetScores | str]()
    keep = None if cache is None else Path(cache)
    with limit_threads(1):  # sums depend on their number
        for target in here:
            if (done := ready.get(target.name)) is None:
                done = score_target(entrant, target, images, cache=keep)
                say(f"{entrant.name}: {target.name}")
            results[target.name] = done
    by_name = {target.name: target for target in every}
    plan = read_plan(folder)
    left = tuple(name for name in plan["targets"] if name not in results)
    machines = [] if stored is None or len(waiting) == len(here) else [*stored.machines]
    machines += [describe_machine()] if waiting else []
    version = str(plan["version"])
    return BenchResult(version, entrant, results, by_name, left, entries, tuple(machines))


def run_command(invocation: Invocation) -> int:
    """Do what `fedmia bench` is asked for; returns the exit code, 0.

    Raises:
        InputError: bad input, or an entry that the check refuses.
    """
    settings: Bench = invocation.settings

    def say(line: str) -> None:
        if not invocation.quiet:
            print(line, file=sys.stderr, flush=True)

    folder = bench_folder(settings.bench)
    if settings.check is not None:
        with limit_threads(1):
            lines = check_entry(Path(settings.check), folder, settings.data, say)
            if invocation.json:
                sys.stdout.write(json_text({"checked": [*lines]}))
            else:
                for line in lines:
                    print(line)
        return 0
    attack = {"name": settings.name, **settings.attack.get(settings.name, {})}
    entrant = Entrant.of(attack, settings.knows, settings.shadows)
    with nullcontext() if settings.submit is None else own_entry(Path(settings.submit), entrant):
        result = evaluate(
            attack, settings.bench, data=settings.data, knows=settings.knows, say=say,
            shadows=settings.shadows, targets=settings.targets, cache=settings.cache,
        )  # fmt: skip
        sys.stdout.write(json_text(result.about) if invocation.json else f"{result}\n")
        if settings.submit is not None:
            folder = Path(settings.submit)
            place = write_entry(
                folder, result.entrant, result.results, result.targets, result.machines
            )
            print(checklist(place, result), file=sys.stderr if invocation.json else sys.stdout)
    return 0


def checklist(place: Path, result: BenchResult) -> str:
    """What is left to do with an entry, as text.

    Args:
        place: folder of the entry.
        result: what it holds.

    Returns:
        A line for each step.
    """
    marks = ["x "[bool(wrong)] for wrong in (result.left_out, result.row.trapped)]
    steps = [
        f"[{marks[0]}] scores of every target: {len(result.left_out)} are missing",
        f"[{marks[1]}] nothing found in a trap",
        f"[ ] fedmia bench --check {place}",
        f"[ ] copy {place.parent.name}/{place.name} to research/bench/{result.version}/{RESULTS} "
        "and open a pull request; the board says unverified until its keepers have run the attack",
    ]
    return "\n".join(["", f"written: {place}", *steps])
