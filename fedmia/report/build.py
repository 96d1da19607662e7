"""From the scores of a run to its report: every row of `report.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from fedmia.records import EPOCHS_CUT, Evaluation, Probe, ScoredAttack, SweepPoint
from fedmia.records.client_rows import ClientRow
from fedmia.records.fields import fields_of, row_of
from fedmia.records.note import Note
from fedmia.records.rows import FORMAT, Family, Report, RoundRow, SweepRow, UtilityRow
from fedmia.report.checks import check
from fedmia.report.clients import client_counts, client_rows, declared_attack
from fedmia.report.cohorts import cohort_rows
from fedmia.report.datasets import inference_row
from fedmia.report.defended import common_defences, defended
from fedmia.report.exposed import (
    exposed_rows,
    list_notes,
    overlap_rows,
    part_rows,
    select_exposed,
)
from fedmia.report.health import health_row
from fedmia.report.judgement import verdict_code
from fedmia.report.lowerbounds import attack_bound, bounds_family, with_bounds
from fedmia.report.metrics import attack_row, auc_numbers, over_control, paired_rows, set_row
from fedmia.report.per_client import named_rows
from fedmia.report.reach import smallest_leak
from fedmia.report.regime import regime_row
from fedmia.report.selection import FEW, select_clients, select_inferred
from fedmia.report.subjects import METHOD as SUBJECTS_METHOD
from fedmia.report.subjects import subject_rows
from fedmia.report.words.bounds import defended_lines
from fedmia.report.words.clients import ranking
from fedmia.report.words.notes import sentences
from fedmia.report.words.verdict import texts
from fedmia.statistics.auc import one_score_count
from fedmia.statistics.intervals import LEVEL, wilson
from fedmia.storage.json_rows import from_json, to_json

METHOD = "Bonferroni over Wilson intervals of the AUC with DeLong's (1988) variance"


def build_report(run: Evaluation) -> Report:
    """The report of one run: of many clients it lists few.

    Raises:
        ValueError: scores that are not finite or do not align, naming the attack.
    """
    return condense(build_whole(run))


def build_whole(run: Evaluation) -> Report:
    """The whole report of one run, its numbers rounded as `fedmia.storage.json_rows` says.

    Raises:
        ValueError: scores that are not finite or do not align, naming the attack.
    """
    check(run)
    tests, beside = family_sizes(run)
    attacks = [
        attack_row(
            a, tests, over_control(a, run, tests), tested=True, prior=run.config.get("prior")
        )
        for a in run.attacks
    ]
    controls = {
        name: [attack_row(a, beside) for a in scored] for name, scored in run.controls.items()
    }
    paired = paired_rows(run.pairs, beside)
    may_differ = not run.drawn and bool(run.controls.get("placebo"))
    inferences = [inference_row(i, tests, run, may_differ) for i in run.inferences]
    clients, distribution = (subject_rows(run), None) if run.by_subject else client_rows(run)
    useful, untrained = utility(run.utility, run.round), utility(run.utility_untrained)
    bounds = bounds_family(run)
    whole = row_of(
        Report,
        run,
        format=FORMAT,
        verdict="",
        verdict_code="",
        means="",
        sure="",
        todo="",
        attacks=attacks,
        sets=[set_row(s, len(run.sets)) for s in run.sets],
        dataset_inference=inferences,
        paired=paired,
        controls={"untrained": [], **controls},
        pixels=run.pixels and auc_numbers(*run.pixels, beside, subjects=run.subjects),
        utility=useful,
        utility_untrained=untrained,
        utility_after_attack=run.after_attack and utility(*run.after_attack),
        health=health_row(run.health, useful, untrained),
        regime=regime_row(attacks),
        clients=clients,
        aggregation=run.aggregation and with_bounds(run.aggregation, bounds),
        client_ranking=None if run.by_subject else ranking(clients),
        lower_bound=attack_bound(run, bounds),
        client_distribution=distribution,
        client_counts=client_counts(run),
        client_cohorts=cohort_rows(run),
        defended=defended(run),
        named_clients=named_rows(run),
        rounds=[round_row(r, run) for r in run.rounds],
        family=Family(
            level=LEVEL,
            intervals=tests,
            intervals_controls=beside,
            intervals_clients=sum(c.auc is not None for c in clients),
            intervals_sets=len(run.sets),
            method=METHOD + SUBJECTS_METHOD * (run.subjects is not None),
        ),
        notes=sentences(notes(run, clients)),
        **titled_rows(run),
        encoder=run.encoder and replace(run.encoder, round=run.round),
        sweep=sweep_rows(run.sweep, len(run.attacks)),
    )
    whole = replace(whole, smallest_leak=smallest_leak(whole), verdict_code=verdict_code(whole))
    words: Any = texts(whole, run.pretrain, common_defences(run.clients))
    return from_json(Report, to_json(replace(whole, **words)), "report")


def titled_rows(run: Evaluation) -> dict[str, Any]:
    """Rows that have a section of their own, by their field: the evaluation's, and of single
    members those that are made of its scores."""
    rows = {name: run.rows.get(name, []) for name, one in fields_of(Report).items() if one.title}
    own = {"exposed": exposed_rows(run), "overlaps": overlap_rows(run), "parts": part_rows(run)}
    return rows | own


def condense(report: Report) -> Report:
    """The same report with the first of the exposed members and, where there are more than MOST
    clients, FEW of these, and in place of the others their number and what is said of their
    defences.

    Args:
        report: with a row for each client, or for each that sets itself apart.

    Returns:
        The report.
    """
    report = replace(report, exposed=select_exposed(report.exposed))
    if (counts := report.client_counts) is None:
        return report
    return replace(
        report,
        clients=select_clients(report),
        client_counts=replace(counts, defended=defended_lines(report)),
        dataset_inference=[
            replace(row, clients=select_inferred(row.clients), n_clients=len(row.clients))
            for row in report.dataset_inference
        ],
        defended=[replace(group, clients=group.clients[:FEW]) for group in report.defended],
    )


def family_sizes(run: Evaluation) -> tuple[int, int]:
    """How many tests for a leak hold together, and how many two-sided intervals.

    These are of controls, pixels, pairs and of the attacks beside them: that attacks may well leak
    costs the controls no more false alarms.
    """

    def count(attacks: Iterable[ScoredAttack]) -> int:
        return sum(min(map(len, a.sides)) > 0 for a in attacks)

    sets = sum(any(c.p_value is not None for c in i.clients) for i in run.inferences)
    rows = [*run.attacks, *(p.attack for p in run.pairs), *chain(*run.controls.values())]
    return max(count(run.attacks) + sets, 1), max(count(rows) + (run.pixels is not None), 1)


def utility(probes: Mapping[str, Probe], turn: int | None = None) -> UtilityRow:
    """kNN and linear probe accuracy with Wilson intervals; null where a probe did not run.

    Args:
        probes: by name, `knn` and `linear`.
        turn: round of the model, None where it has none.

    Returns:
        The row of `report.json`.
    """

    def ci(probe: Probe) -> tuple[float, float] | None:
        if probe.value is None or probe.trials is None:
            return None if probe.value is None else wilson(round(probe.value * probe.n), probe.n)
        return wilson(probe.value * probe.trials, probe.trials)

    values = {name: probe.value for name, probe in probes.items()}
    intervals = {f"{name}_ci": ci(probe) for name, probe in probes.items()}
    n = max((probe.n for probe in probes.values()), default=0)
    return row_of(UtilityRow, None, round=turn, n=n, **values, **intervals)


def round_row(row: RoundRow, run: Evaluation) -> RoundRow:
    """One entry of the report's `rounds`: the row of a round, with the numbers of attacks.

    Args:
        row: without them.
        run: the scores.

    Returns:
        The row of `report.json`.
    """
    numbers: dict[str, Any] = {}
    for kind, by_round in (("leakage", run.leakage), ("layers", run.layers)):
        attacks = by_round.get(row.round, {})
        rows = {name: auc_numbers(*scored.sides, 1) for name, scored in attacks.items()}
        numbers[kind] = {name: row.auc for name, row in rows.items()}
        numbers[f"{kind}_ci"] = {name: row.auc_ci for name, row in rows.items()}
    return replace(row, **numbers)


def sweep_rows(points: Sequence[SweepPoint], attacks: int) -> list[SweepRow]:
    """The report's `sweep`; its simultaneous intervals hold over all values of all attacks.

    Args:
        points: scores at each value.
        attacks: how many attacks were swept.

    Returns:
        A row for each attack and value.
    """
    family = len({point.value for point in points}) * attacks
    return [
        row_of(SweepRow, point, scored=point.scored and attack_row(point.scored, family))
        for point in points
    ]


def notes(run: Evaluation, clients: Sequence[ClientRow]) -> list[Note]:
    """The notes of every report, then those that this run calls for, then the evaluation's own.

    Args:
        run: the scores.
        clients: rows of the clients.

    Returns:
        The notes.
    """
    every = [Note("one-model", {"trained": bool(run.rounds)})]  # an audit trains no model
    if run.attacks:
        every.append(Note("thresholds"))
    for control, attacks in ((None, run.attacks), *run.controls.items()):
        for a in attacks:
            images, of = one_score_count(*a.sides), sum(map(len, a.sides))
            if not all(map(len, a.sides)):
                every.append(Note("one-side-unscored", {"attack": a.name, "control": control}))
            elif images is not None:
                every.append(
                    Note(
                        "one-score-for-all",
                        {"attack": a.name, "control": control, "images": images, "of": of},
                    )
                )
    if any(a.act == "ascent" for a in run.attacks):
        every.append(Note("ascent-elsewhere"))
    every += list_notes(run)
    every += [
        Note("epochs-cut", {"attack": a.name, "epochs": a.choices[EPOCHS_CUT]})
        for a in run.attacks
        if EPOCHS_CUT in a.choices
    ]
    by = declared_attack(run)
    if by is not None and not run.by_subject and any(c.auc is not None for c in clients):
        owned = run.whose is not None
        every.append(
            Note(
                "clients-compared",
                {"attack": by.name, "under_attack": by.under_attack, "own_nonmembers": owned},
            )
        )
    every += [
        Note(
            "client-failed",
            {"client": one.client, "reason": one.reason, "round": one.round,
             "branch": one.branch, "action": one.action},
        )
        for one in run.faults
        if one.action in ("retried", "dropped")  # and did not stop the run
    ]  # fmt: skip
    return every + [n for n in run.notes if n not in every]
