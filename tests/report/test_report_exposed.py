"""Who is exposed: the list, which attacks find the same members, which parts are found."""

from __future__ import annotations

import base64
import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedmia.records import Evaluation
from fedmia.records.rows import Report
from fedmia.report.build import build_report, build_whole
from fedmia.report.page import page
from fedmia.report.publish import write_report
from fedmia.statistics.exposed import most_false
from fedmia.statistics.thresholds import tpr_at_fpr
from tests.report.conftest import alone, numbers, opened, said, scored, section, tables

FEW = 20  # rows that report.json and the page have


@pytest.fixture(scope="module", name="whole_list")
def _whole_list(run: Evaluation) -> Report:
    return build_whole(run)


def sentence_of(report: Report) -> str | None:
    """What is said of the list."""
    lines = said(report).splitlines()
    return next(
        (one for one in lines if one.startswith(("Of the first", "No list", "The list"))), None
    )


def found(members: NDArray[np.float64], others: NDArray[np.float64]) -> set[int]:
    """Places of the members that no more than one in twenty non-members score as high as."""
    high = (others >= members[:, None]).sum(axis=1)
    return {*np.flatnonzero(high <= len(others) / 20).tolist()}


def test_list__has_the_scored_members_by_falling_score(run: Evaluation, whole_list: Report) -> None:
    attack, others = run.attacks[1], [run.attacks[i] for i in (0, 2, 3)]  # combined is declared
    rows, by = whole_list.exposed, dict(zip(run.member_ids.tolist(), range(112), strict=True))
    places = [by[row.image or 0] for row in rows]
    assert places == np.argsort(-attack.scores_members, kind="stable")[: len(rows)].tolist()
    bound = most_false(*attack.sides)
    for row, place in zip(rows, places, strict=True):
        score = attack.scores_members[place]
        assert (row.attack, row.rank, row.subject) == ("combined", places.index(place) + 1, None)
        assert row.score == pytest.approx(score, abs=1e-6)
        assert row.p_value == pytest.approx(
            (1 + sum(attack.scores_nonmembers >= score)) / 501, abs=1e-6
        )
        assert row.most_false == bound[row.rank - 1]
        assert row.client == run.member_client[place] and row.label == run.member_labels[place]
        assert row.also == [a.name for a in others if place in found(*a.sides)]
        assert row.file is None and row.picture is None
    # It ends where its bound says no more.
    sure = np.arange(1, 113) - bound
    assert rows[-1].rank - rows[-1].most_false == sure.max() and sure[len(rows) - 2] < sure.max()


def test_list__report_json_has_the_first_and_the_end_and_the_file_has_all(
    run: Evaluation, report: Report, whole_list: Report, tmp_path: Path
) -> None:
    rows = whole_list.exposed
    assert len(rows) > FEW and report.exposed == [*rows[:FEW], rows[-1]]
    opened(tmp_path, report, run)
    file = tmp_path / "exposed.csv"
    lines = [*csv.DictReader(io.StringIO(file.read_text()))]
    assert file.stat().st_mode & 0o777 == 0o600
    assert [*lines[0]] == [
        "rank", "attack", "image", "client", "label", "score", "p_value", "most_false", "also",
    ]  # fmt: skip
    assert [int(line["image"]) for line in lines] == [row.image for row in rows]
    assert [line["also"].split(";") if line["also"] else [] for line in lines] == [
        row.also for row in rows
    ]
    of_list = [r for r in numbers(tmp_path) if r["subject"].startswith("exposed/")]
    assert {r["metric"] for r in of_list} == {"score", "p_value", "most_false"}
    assert {r["subject"] for r in of_list} == {f"exposed/{row.rank}" for row in report.exposed}


def test_list__of_subjects_has_the_means_of_their_images(run: Evaluation) -> None:
    attack, generator = run.attacks[1], np.random.default_rng(0)
    mine, theirs = generator.integers(0, 25, 112), generator.integers(25, 70, 500)
    names = tuple(f"patient {i}" for i in range(70))
    whole = replace(run, subjects=(mine, theirs), subject_names=names, clients=(), rounds=())
    report = build_whole(whole)
    means = {names[i]: attack.scores_members[mine == i].mean() for i in np.unique(mine)}
    others = [attack.scores_nonmembers[theirs == i].mean() for i in np.unique(theirs)]
    falling = sorted(means, key=lambda name: -means[name])
    assert [row.subject for row in report.exposed] == falling[: len(report.exposed)]
    first = report.exposed[0]
    assert first.image is None and first.client is None
    assert first.images == (mine == names.index(falling[0])).sum()
    assert first.score == pytest.approx(means[falling[0]], abs=1e-6)
    want = (1 + sum(o >= means[falling[0]] for o in others)) / (len(others) + 1)
    assert first.p_value == pytest.approx(want, abs=1e-6)
    assert {row.n_members for row in report.overlaps} == {len(means)}
    # Two sizes of units: without subjects the intervals of parts are narrower.
    width = [r.high - r.low for r in report.parts if r.low is not None and r.high is not None]
    plain = [
        r.high - r.low
        for r in build_whole(run).parts
        if r.kind == "class" and r.high and r.low is not None
    ]
    assert width and sum(width) > sum(plain)


def test_list__needs_twenty_non_members(run: Evaluation) -> None:
    def cut(m: int) -> Report:
        attacks = [scored("similarity", 0.9, 112, m, 1)]
        few = alone(run, *attacks, pixels=None, curves=None, leakage={}, layers={})
        return build_report(replace(
            few, nonmember_ids=few.nonmember_ids[:m], nonmember_labels=few.nonmember_labels[:m],
        ))  # fmt: skip

    few, enough = cut(19), cut(20)
    assert few.exposed == few.overlaps == few.parts == [] and len(enough.exposed) >= FEW
    notes = [[n for n in r.notes if "exposed" in n] for r in (few, enough)]
    assert notes[1] == [] and len(notes[0]) == 1 and "19" in notes[0][0] and "20" in notes[0][0]
    subjects = np.arange(112) % 30, np.arange(500) % 19
    patients = replace(run, subjects=subjects, subject_names=tuple(map(str, range(30))), clients=())
    assert build_report(patients).exposed == []


def test_overlaps__are_shares_of_sets(run: Evaluation, report: Report) -> None:
    own = found(*run.attacks[1].sides)
    rows = {row.attack: row for row in report.overlaps}
    assert [*rows] == sorted(rows, key=lambda name: -rows[name].both)
    assert rows.keys() == {"similarity", "internal", "ascent"}
    for attack in run.attacks:
        if attack.name in rows:
            theirs, row = found(*attack.sides), rows[attack.name]
            want = [len(own & theirs), len(own | theirs), len(theirs)]
            got = [row.both, row.either, row.share]
            assert got == pytest.approx([number / 112 for number in want], abs=1e-6)
            assert row.independent == pytest.approx(len(own) * len(theirs) / 112**2, abs=1e-6)
            assert row.both_ci[0] <= row.both <= row.both_ci[1] and row.beside == "combined"


def test_parts__are_classes_and_clients_with_enough_members(run: Evaluation) -> None:
    labels = np.repeat([0, 1, 2, 3], [40, 33, 20, 19]), np.arange(500) % 5
    clients = np.repeat([4, 2], [60, 52])
    one = replace(run, member_labels=labels[0], nonmember_labels=labels[1], member_client=clients)
    rows, attack = build_report(one).parts, run.attacks[1]
    assert [(r.kind, r.name, r.n_members) for r in rows] == [
        ("class", "0", 40), ("class", "1", 33), ("class", "2", 20), ("client", "2", 52),
        ("client", "4", 60),
    ]  # fmt: skip
    for row in rows:
        mine = (labels[0] if row.kind == "class" else clients) == int(row.name)
        rate = tpr_at_fpr(attack.scores_members[mine], attack.scores_nonmembers, 0.05, family=5)
        assert rate is not None
        assert [row.share, row.low, row.high] == pytest.approx([rate[0], *rate[1]], abs=1e-6)
        if row.kind == "client":
            assert row.alarms is None and row.n_nonmembers is None
            continue
        cut = np.sort(attack.scores_nonmembers)[-25]
        like = attack.scores_nonmembers[labels[1] == int(row.name)]
        assert (
            row.alarms == pytest.approx((like >= cut).mean(), abs=1e-6) and row.n_nonmembers == 100
        )
    assert build_report(one).family.intervals == 4  # of the attacks alone, as before


def test_parts__are_the_largest_where_they_are_many(run: Evaluation) -> None:
    n, sizes = 900, np.arange(20, 45)
    labels = np.repeat(np.arange(25), sizes)[:n]
    n = len(labels)
    attack = scored("similarity", 0.8, n, 500, 3)
    many = alone(
        run, attack, member_ids=np.arange(n), member_client=np.zeros(n, int), member_labels=labels,
        nonmember_ids=np.arange(n, n + 500), pixels=None, curves=None, leakage={}, layers={},
    )  # fmt: skip
    assert [row.name for row in build_report(many).parts] == [*map(str, range(5, 25))]


def test_sentence__says_what_the_bound_allows(run: Evaluation, report: Report) -> None:
    best = report.exposed[-1]
    text = sentence_of(report)
    assert text and f"first {best.rank} " in text and f"{best.rank - best.most_false} are" in text
    assert "probab" not in text
    nothing = build_report(alone(run, scored("similarity", 0.5, 112, 500, 9)))
    assert (text := sentence_of(nothing)) and text.startswith("No list by similarity holds")
    assert all(row.most_false == row.rank for row in nothing.exposed)
    void = replace(report, verdict_code="control-failed")
    assert (text := sentence_of(void)) and "names nobody" in text
    assert sentence_of(replace(report, exposed=[])) is None
    # A long list with a bound of a third, whose beginning is nearly clean.
    rows = [replace(r, most_false=1) for r in report.exposed[:FEW]]
    mixed = [*rows, replace(best, rank=90, most_false=30)]
    text = sentence_of(replace(report, exposed=mixed))
    assert text and "first 90 " in text and "least 60" in text
    assert "first 20 alone at least 19" in text


def picture(role: str, at: int) -> tuple[NDArray[np.uint8], str]:
    """A picture of its own for each image."""
    seed = at + 1000 * (role == "scored_nonmembers")
    pixels = np.random.default_rng(seed).integers(0, 256, (3, 96, 96), dtype=np.uint8)
    return pixels, f"file-{role}-{at}.png"


def test_pictures__are_small_and_of_the_rows_of_the_page(run: Evaluation, tmp_path: Path) -> None:
    shown = replace(run, picture=picture)
    whole = build_whole(shown)
    pictures = [row.picture for row in whole.exposed]
    assert all(pictures[:FEW]) and not any(pictures[FEW:])
    first = Image.open(io.BytesIO(base64.b64decode(pictures[0] or "")))
    assert first.size == (64, 64)
    assert whole.exposed[0].file == f"file-scored_members-{whole.exposed[0].image}.png"
    report, png = build_report(shown), {"exposed.png": b"picture"}
    write_report(tmp_path, shown, report, png, whole)
    text = (tmp_path / "report.html").read_text()
    assert all(f'data:image/png;base64,{one}"' in text for one in pictures[:FEW])
    assert (tmp_path / "figures" / "exposed.png").is_file()
    assert "file" in (tmp_path / "exposed.csv").read_text().partition("\n")[0].split(",")
    assert any("images themselves" in note for note in report.notes)
    # Published once more without pictures, nothing of them stays.
    opened(tmp_path, build_report(run), run)
    assert not [*(tmp_path / "figures").glob("exposed.*")]
    for file in (f for f in tmp_path.rglob("*") if f.is_file()):
        content = file.read_bytes()
        assert b"file-scored" not in content, file
        assert not any((one or "-").encode() in content for one in pictures[:FEW]), file


def test_table__leaves_out_columns_of_nothing(run: Evaluation, report: Report) -> None:
    def heads(of: Report) -> list[str]:
        return tables(section(page(of, {}), "who-is-exposed"))[0][0]

    plain, shown = heads(report), heads(build_report(replace(run, picture=picture)))
    assert {*shown} - {*plain} == {"file", "picture"} and {*plain} >= {"image", "client", "class"}
    assert "subject" not in plain and "images" not in plain
    assert 'class="thumb"' not in page(report, {})
