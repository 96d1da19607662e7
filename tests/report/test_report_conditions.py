"""The report's sentences and choices from rows by hand: each condition on either side of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmia.records import DatasetInferenceResults, Evaluation, Probe
from fedmia.records.attack_rows import AttackRow, AucRow
from fedmia.records.client_rows import ClientInferenceRow, ClientRow
from fedmia.records.fields import fields_of
from fedmia.records.rows import Report
from fedmia.report.build import family_sizes, utility
from fedmia.report.clients import client_leaks, declared_attack, distribution
from fedmia.report.judgement import code_by_attacks
from fedmia.report.selection import FEW, reasons, select_inferred
from fedmia.report.words.bounds import defended_sentence
from fedmia.report.words.clients import ranking
from fedmia.report.words.verdict import verdict
from fedmia.statistics.intervals import wilson
from tests.made_up_runs import made_up
from tests.report.conftest import compared
from tests.snapshots import Snapshot


def row(
    name: str, low: float, high: float, auc: float | None = None, kind: Any = AttackRow, **more: Any
) -> Any:
    """An attack with this simultaneous interval, its AUC in the middle."""
    value = (low + high) / 2 if auc is None else auc
    known = {
        "name": name, "auc": value, "auc_ci": [low, high], "low": low, "high": high,
        "lower_limit": low, "n_members": 10, "n_nonmembers": 20, "access": "black_box",
        "vantage": "client", "over_control": over(0.01), **more,
    }  # fmt: skip
    return made_up(kind, **{name: known[name] for name in fields_of(kind) if name in known})


def over(low: float) -> Any:
    """What an attack adds to its placebo."""
    bracket = {"low": low - 0.01, "high": low + 0.1}
    return {
        "control": "placebo", "difference": low + 0.05, **bracket, "lower_limit": low,
        "tests": 1, "n_controls": 1,
    }  # fmt: skip


def without(attack: AttackRow) -> AttackRow:
    return replace(attack, over_control=None)


@pytest.mark.parametrize(
    ("attacks", "controls", "code", "said"),
    [
        ([row("a", 0.5, 0.9)], {}, "not-established", ": a has"),
        ([row("a", 0.501, 0.9)], {}, "leaks", "a separates"),
        # the one-sided limits decide, inside of brackets that reach 0.5 and 0
        ([row("a", 0.49, 0.9, lower_limit=0.501)], {}, "leaks", "[0.49, 0.90] (at 95 % for all "
         "attacks together; lower limit 0.501; 10 members, 20 non-members). The encoder leaks"),
        ([row("a", 0.51, 0.9, lower_limit=0.5)], {}, "not-established", "lower limit 0.500"),
        ([row("a", 0.6, 0.7), row("b", 0.55, 0.9)], {}, "leaks", "b separates"),  # the largest
        ([row("a", 0.6, 0.7), row("b", 0.4, 0.99)], {}, "leaks", "a separates"),
        ([row("a", 0.1, 0.4), row("b", 0.6, 0.7)], {}, "leaks", "; a is reversed"),
        ([row("a", 0.1, 0.5)], {}, "not-established", ": a has AUC 0.30 [0.10, 0.50]"),
        ([row("a", 0.1, 0.4), row("b", 0.1, 0.3)], {}, "not-established", "; a, b are reversed"),
        ([row("a", 0.4, 0.6), row("b", 0.3, 0.8, 0.5)], {}, "not-established", "; a is"),
        ([row("a", 0.6, 0.7, vantage="server")], {}, "leaks", "The clients' updates"),
        ([row("a", 0.6, 0.7)], {"untrained": [row("a", 0.5, 0.6)]}, "leaks", "a separates"),
        ([row("a", 0.6, 0.7)], {"own": [row("c", 0.51, 0.6)]}, "control-failed", ": c under"),
        ([row("a", 0.6, 0.7)], {"zero": [row("c", 0.51, 0.6)]}, "leaks", "a "),
        ([row("a", 0.6, 0.7)], {"untrained": [row("c", 0.51, 0.6), row("d", 0.2, 0.3)]},
         "control-failed", ": d under"),  # farthest from a half, either side
        ([row("a", 0.6, 0.7)], {"untrained": [row("c", 0.51, 0.6)],
          "pixels": row("", 0.1, 0.4, kind=AucRow)}, "shift", "pixels"),
        ([row("a", 0.6, 0.7)], {"pixels": row("", 0.5, 0.6, kind=AucRow)}, "leaks", "a separates"),
        ([row("a", 0.51, 0.7, over_control=over(0.0))], {}, "not-established", "placebo"),
        ([without(row("a", 0.6, 0.7))], {}, "leaks-uncontrolled", "a separates"),
        ([without(row("a", 0.7, 0.8)), row("b", 0.6, 0.7)], {}, "leaks", "b separates"),
    ],
)  # fmt: skip
def test_verdict__of_intervals(
    attacks: list[Any], controls: dict[str, Any], code: str, said: str
) -> None:
    listed = {name: rows for name, rows in controls.items() if name != "pixels"}
    report = made_up(Report)
    pixels = controls.get("pixels")
    report = replace(report, attacks=attacks, controls=listed, pixels=pixels)
    report = replace(report, verdict_code=code_by_attacks(report))
    sentence = verdict(report, "none")
    assert report.verdict_code == code and said in sentence
    assert ("reversed" in sentence) == ("reversed" in said)


def test_ranking__names_whom_an_interval_lies_over(snapshot: Snapshot) -> None:
    def client(number: int, low: float, high: float) -> Any:
        return row("", low, high, kind=ClientRow, id=number, attack="similarity")

    rows = [client(0, 0.4, 0.5), client(1, 0.5, 0.7), client(2, 0.6, 0.8), client(3, 0.1, 0.3)]
    snapshot(ranking(rows))  # 0.5 and 0.5 touch
    assert ranking(rows[:2]) is None
    low = [client(i, 0.4, 0.6) for i in range(FEW)]
    snapshot(ranking([*low, client(90, 0.6, 0.7), client(91, 0.8, 0.9)]))
    snapshot(ranking([*low, *(client(90 + i, 0.7, 0.8) for i in range(5))]))


def test_reasons__who_is_shown_of_many() -> None:
    def client(number: int, low: float, high: float, **more: Any) -> Any:
        usual = {"id": number, "role": "honest", "size": 10}
        return row("", low, high, kind=ClientRow, **usual | more)

    refuted = {"value": 1.0, "lower_bound": {"refuted": True}}
    rows = [
        client(0, 0.3, 0.49), client(1, 0.51, 0.9, size=15), client(2, 0.6, 0.7),
        client(3, 0.4, 0.5, defence={"name": "d", "epsilon": refuted}, size=40),
        client(4, 0.2, 0.95, size=19, role="active"), client(5, 0.1, 0.2),
    ]  # fmt: skip
    ids = {why: [one.id for one in some] for why, some in reasons(rows).items()}
    assert ids == {
        "not honest": [4], "claim refuted": [3], "interval excludes 0.5": [2, 1, 5, 0],
        "most leaking": [2, 1, 3, 0, 4, 5], "least leaking": [5, 0, 3, 2, 1, 4],
        "defended": [3], "most images": [3, 4],  # more than 1.5 times the median of 12.5
    }  # fmt: skip


def test_told_apart__the_smallest_p_values_of_many() -> None:
    p_values = (*np.linspace(0.9, 0.1, FEW).tolist(), None)
    rows = [made_up(ClientInferenceRow, client=i, p_value=p) for i, p in enumerate(p_values)]
    rows_shown = select_inferred(rows)
    assert (
        len(rows_shown) == FEW
        and rows_shown[0].p_value == pytest.approx(0.1)
        and rows[-1] not in rows_shown
    )
    assert select_inferred(rows[1:]) == rows[1:]


def test_defended__what_is_said_of_them(snapshot: Snapshot) -> None:
    for low, auc, null in ((0.51, 0.7, [0.4, 0.6]), (0.51, 0.6, [0.4, 0.6]),
                           (0.5, 0.7, [0.4, 0.6]), (0.51, 0.6, None)):  # fmt: skip

        def group(name: str, value: float, low: float = low, null: Any = null) -> Any:
            own = {"attack": "a", "auc": value, "low": low, "high": 0.9, "null_ci": null}
            rows = [own | {"attack": "b", "auc": 0.99}, own]
            return made_up(
                fields_of(Report)["defended"].record, group=name, attack="a", leakage=rows
            )

        both = [group("defended", auc), group("undefended", 0.8)]
        sentence, alone = (defended_sentence(groups) or "" for groups in (both, both[:1]))
        snapshot(sentence)
        assert alone == sentence.partition(", of undefended")[0] + "."
    none, other = ([replace(one, attack=by) for one in both] for by in (None, "z"))
    snapshot(defended_sentence(none) or "")
    assert defended_sentence(other) == defended_sentence(none)  # none of their images has scores


def test_utility__intervals_are_of_the_images_tested() -> None:
    row = utility({"knn": Probe(0.64, 50), "linear": Probe(0.7, 60)}, 4)
    assert (row.round, row.knn, row.linear, row.n) == (4, 0.64, 0.7, 60)
    assert (row.knn_ci, row.linear_ci) == (wilson(32, 50), wilson(42, 60))
    none = utility({"linear": Probe(None, 0)})
    assert (none.knn, none.knn_ci, none.linear_ci, none.n) == (None, None, None, 0)


def test_family__counts_what_has_both_sides(run: Evaluation) -> None:
    empty = replace(run.attacks[0], name="none", scores_members=np.zeros(0))
    bare = replace(run, attacks=[run.attacks[0], empty], controls={}, pairs=[], pixels=None)
    assert family_sizes(bare) == (1, 1) == family_sizes(replace(bare, attacks=[empty]))
    assert family_sizes(replace(bare, pixels=run.pixels, pairs=run.pairs)) == (1, 3)
    asked = DatasetInferenceResults("a", "", [compared(0, 0.5, 5, 7)], [])
    unasked = replace(asked, clients=[compared(0, None, 0, 0)])
    assert family_sizes(replace(bare, inferences=[asked, unasked, asked])) == (3, 1)


def test_distribution__counts_each_side_of_its_own() -> None:
    def client(low: float, high: float, band: list[float] | None) -> Any:
        return row("", low, high, kind=ClientRow, null_ci=band)

    rows = [client(0.5, 0.7, [0.4, 0.6]), client(0.51, 0.71, [0.4, 0.6]), client(0.3, 0.5, None),
            client(0.2, 0.49, [0.4, 0.5]), replace(client(0.1, 0.2, None), auc=None)]  # fmt: skip
    found = distribution(rows, [np.array([0.4, 0.5]), np.array([0.6])])
    assert (found.clients, found.over_half, found.under_half) == (4, 1, 1)
    assert (found.with_null, found.over_null) == (3, 1)  # 0.6 is not over 0.6
    assert found.percentiles[::100] == pytest.approx([0.345, 0.61])
    assert found.null_percentiles is not None
    assert [found.null_percentiles[i] for i in (0, 50, 100)] == [0.4, 0.5, 0.6]
    assert distribution(rows, []).null_percentiles is None


def test_client_leak__counts_the_members_that_can_be_compared(run: Evaluation) -> None:
    odd, mine = np.arange(len(run.member_client)) % 2 == 1, run.member_client == 3
    attack, foreign = declared_attack(run), int(run.nonmember_labels.max()) + 1
    some = replace(run, member_labels=np.where(odd, foreign, run.member_labels))
    assert client_leaks(some, attack)[3][0] == np.sum(mine & ~odd)
    assert client_leaks(some, None)[3] == (np.sum(mine), None)
    none = replace(run, member_labels=np.where(mine, foreign, run.member_labels))
    assert client_leaks(none, attack)[3] == (0, None)


def test_declared__on_a_model_not_under_attack_before_one_that_is(run: Evaluation) -> None:
    first, other = (replace(run.attacks[i], name=n, under_attack=u)
                    for i, n, u in ((0, "x", True), (1, "y", False)))  # fmt: skip
    empty = replace(run.attacks[0], name="combined", scores_members=np.zeros(0))
    similar = replace(run.attacks[0], name="similarity", under_attack=True)

    def declared(*attacks: Any) -> str | None:
        by = declared_attack(replace(run, attacks=attacks))
        return by and by.name

    assert declared(first, other) == "y" and declared(first) == "x" and declared() is None
    assert declared(empty, first, other) == "y" and declared(other, similar) == "similarity"
    assert declared(similar, replace(other, name="combined")) == "combined"
