"""From planted reports to the points, the front, the choice and the page of a trade-off."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student
from scipy.stats import ttest_1samp

from fedmia import InputError, StudyResult
from tests.fake_runs import Studies, compare, golden, tables
from tests.report.conftest import Page
from tests.snapshots import Snapshot

SEEDS = 5
WAVE = (-0.02, 0.01, 0.0, -0.01, 0.02)  # of the seeds: mean 0, deviation sqrt(0.001 / 4)
# AUC of `similarity` and of `internal`, and kNN, in the mean, of each point.
PLANTED = {
    "no defence": (0.70, 0.65, 0.80),
    "gaussian scale=0.01": (0.69, 0.66, 0.80),
    "gaussian scale=0.1": (0.56, 0.60, 0.77),
    "gaussian scale=1.0": (0.50, 0.51, 0.50),
    "dpsgd noise_multiplier=1.0": (0.595, 0.55, 0.785),
    "dpsgd noise_multiplier=9.0": (0.50, 0.50, 0.49),
}
BARE, LEAST = "no defence", "dpsgd noise_multiplier=1.0"
FLAGS = (
    "--defenses gaussian,dpsgd --strengths gaussian=0.01,0.1,1 --strengths dpsgd=1,9 --attacker "
    f"passive --attacks similarity,internal --seeds {SEEDS} --view tradeoff"
)
MAIN = "Privacy and utility"
Numbers = Mapping[str, tuple[float, float, float]]
Edit = Callable[[str, int, dict[str, Any]], Any]  # point, seed and report


def point_of(name: str) -> str:
    """`gaussian scale=0.1` of `defense=gaussian_defense.scale=0.1`."""
    _, kind, *more = re.split(r"defense=|_defense\.", name)
    return BARE if kind == "none" else " ".join([kind, *more])


def promise(value: float | None, **more: Any) -> dict[str, Any]:
    own = {"value": value, "delta": 0.0, "rounds": 2, "standing": "guaranteed"}
    return own | {"assumptions": "", "unit": "client"} | more


def planted(point: str, seed: int, numbers: Numbers) -> dict[str, Any]:
    """A report in which the attacks' AUCs follow the wave, one of them reversed at dpsgd."""
    report = golden()
    similarity, internal, knn = numbers[point]
    moved = WAVE[-1 - seed] if point.startswith("dpsgd") else WAVE[seed]
    rows = {row["name"]: row for row in report["attacks"]}
    report["attacks"] = [
        rows["similarity"] | {"auc": round(similarity + moved, 6)},
        rows["internal"] | {"auc": round(internal + moved, 6)},
    ]
    report["not_run"] = {"lira": "failed: <NaN>" if seed else "no <shadows>"}
    report["utility"] |= {"knn": round(knn + moved / 10, 6), "linear": 0.3}
    report["utility_untrained"]["knn"] = round(0.6 - WAVE[seed] / 10, 6)
    sides, report["defended"] = report["defended"], []
    if point == LEAST:
        ups = (0.0, 0.1 + seed / 100)
        for side, up in zip(sides, ups, strict=True):
            one, *_ = side["leakage"]
            found = [one | {"attack": "similarity", "auc": 0.5 + up + seed / 100},
                     one | {"attack": "internal", "auc": 0.9}]  # fmt: skip
            report["defended"].append(side | {"leakage": found})
    defence = next(client["defence"] for client in report["clients"] if client["defence"])
    for client in report["clients"]:
        client["defence"] = None
    report["aggregation"] = None
    if point != BARE:
        more = {"name": "one", "metrics": {}, "parts": [], "beside": []}
        more["epsilon"] = defence["epsilon"] | promise(8.0 + seed)
        report["clients"][0]["defence"] = defence | more
    rest: dict[str, Any] = {
        "paired": [],
        "controls": {},
        "pixels": None,
        "verdict": "One sentence.",
    }
    return report | rest


def made(
    studies: Studies, out: Path, numbers: Numbers | None = None, edit: Edit | None = None,
    seeds: int = SEEDS,
) -> StudyResult:  # fmt: skip
    """The trade-off of the planted runs, with other numbers and as `edit` leaves them."""

    def report(name: str) -> Any:
        folder, _, seed = name.rpartition("_seed=")
        if int(seed) >= seeds:
            return None
        point = point_of(folder)
        one = planted(point, int(seed), {**PLANTED, **(numbers or {})})
        return one if edit is None else edit(point, int(seed), one)

    return studies.plant(FLAGS, report, out)


@pytest.fixture(scope="module")
def whole(studies: Studies, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    return made(studies, tmp_path_factory.mktemp("tradeoff") / "OUT")


def column(study: StudyResult, head: str, title: str = MAIN) -> dict[str, str]:
    """The cells of a column by point."""
    return {row["defence"]: row[head] for row in tables(study)[title]}


def bold(study: StudyResult) -> list[str]:
    """The points that are set bold."""
    table = study.views["tradeoff"].sections(study)[0].table()
    return [str(table.rows[at][0]) for at in table.marked]


def test_shown__in_terminal_and_page(studies: Studies, tmp_path: Path, snapshot: Snapshot) -> None:
    """No word is broken on 80 columns. The page has every number of each point: the best attack's
    AUC, differences at equal seeds, use over the untrained encoder, groups, the front."""
    out = tmp_path / "OUT"
    made(studies, out)
    ran = compare(out, wide=80)
    table = ran.out.partition("Choosing a defence")[0]
    assert ran.code == 0 and max(map(len, table.splitlines())) <= 80
    assert all(word in table.split() for word in ("guaranteed", "internal", "gaussian"))
    snapshot(table)
    text = (out / "study.html").read_text(encoding="utf-8")
    assert not re.findall(r"<th>(.*?)</th>", text)  # each head has a title
    document = Page(text)
    assert sum(link.startswith("data:") for link in document.loads) == 1
    own, _, rest = document.text().rpartition("\nRuns\n")
    snapshot(own + rest.partition("\nNotes")[2].partition("\nThe study")[0])


def test_best__and_one_correction_over_all_that_was_tried(whole: StudyResult) -> None:
    assert [*column(whole, "best attack").values()] == [
        "similarity", "similarity", "internal", "internal", "similarity", "similarity",
    ]  # fmt: skip
    error = np.sqrt(0.001 / 4 / 5)
    halves = student.ppf(1 - 0.025, 4) * error, student.ppf(1 - 0.025 / 12, 4) * error
    for name, place in (("similarity", 0), ("internal", 1)):
        for point, text in column(whole, name, "Every attack").items():
            mean = PLANTED[point][place]
            numbers = [float(one) for one in re.findall(r"[\d.]+", text)]
            wanted = [mean, *(mean + sign * half for half in halves for sign in (-1, 1))]
            assert numbers == pytest.approx(wanted, abs=6e-4)


def test_use__is_that_of_the_model_that_the_attack_reads(studies: Studies, tmp_path: Path) -> None:
    """The passive attacks' before the attacked rounds, after them that of the active one, which
    leaks most and costs half of the kNN."""

    def attacked(point: str, seed: int, report: Any) -> Any:
        report["attacks"][1] |= {"name": "ascent", "auc": 0.9, "under_attack": True}
        after = {**report["utility_untrained"], "knn": 0.4, "linear": 0.5}
        return report | {"utility_after_attack": after}

    study = made(studies, tmp_path / "OUT", edit=attacked, seeds=2)
    for row in tables(study)[MAIN]:  # leak and use in one picture
        assert row["best attack"] == "ascent"
        used = row["weighted kNN, 95 %"], row["linear probe, 95 %"]
        assert used == ("0.400 (2 equal)", "0.500 (2 equal)")
        change = row["kNN minus undefended, 95 %"]
        assert change == ("–" if row["defence"] == BARE else "+0.000 (2 equal)")


IMAGE = {"unit": "image"}
# What the models of each defence promise, and what the page says of them.
PROMISES: dict[str, tuple[list[Any], str]] = {
    "gaussian scale=0.01": (
        [promise(3.0, **IMAGE), promise(19.0, standing="heuristic", **IMAGE)],
        "19 for one image, heuristic",
    ),
    # No finite one is the largest.
    "gaussian scale=0.1": (
        [promise(None, standing="heuristic"), promise(9.0)],
        "none for one client, no meaningful guarantee",
    ),
    # One that promises nothing is not passed over; units and deltas are never mixed.
    "gaussian scale=1.0": ([promise(3.0), None], "–"),
    LEAST: ([promise(3.0), promise(5.0, **IMAGE)], "–"),
    "dpsgd noise_multiplier=9.0": ([promise(3.0), promise(5.0, delta=1e-5)], "–"),
}


def test_epsilon__is_the_largest_of_all_models_or_none(studies: Studies, tmp_path: Path) -> None:
    """In a run it is that of its clients, or of the server where none defends itself."""
    kept = golden()["clients"][0]["defence"]
    server = {"name": "one", "epsilon": kept["epsilon"] | promise(3.0), "metrics": {},
              "view": "updates"}  # fmt: skip
    own: list[Any] = [([], None), ([], server), ([8.0, 9.5], server), ([8.0, ...], None)]

    def edit(point: str, seed: int, report: Any) -> Any:
        clients = report["clients"]
        more = {"name": "one", "metrics": {}, "parts": [], "beside": []}

        def state(client: Any, one: Any) -> None:
            client["defence"] = kept | more | {"epsilon": one and kept["epsilon"] | one}

        if point == BARE:
            values, report["aggregation"] = own[seed]
            for client, value in zip(clients, values, strict=False):
                state(client, None if value is ... else promise(value))
        elif seed > 1:
            return None
        else:
            state(clients[0], PROMISES[point][0][seed])
        return report

    study = made(studies, tmp_path / "OUT", edit=edit, seeds=4)
    assert len(study.runs) == 4 + 2 * len(PROMISES)
    told = column(study, "epsilon at most")
    assert {point: told[point] for point in PROMISES} == {p: t for p, (_, t) in PROMISES.items()}
    found = [cell.epsilon and cell.epsilon["value"] for cell in study.by_point()[BARE]]
    assert found == [None, 3.0, 9.5, None, None]


def test_groups__of_models_in_which_some_defend_themselves(
    studies: Studies, tmp_path: Path
) -> None:
    """A mean of each side, and of the difference where a model has both."""
    title = "Clients that defend themselves, and their neighbours"

    def edit(point: str, seed: int, report: Any) -> Any:
        sides = golden()["defended"]
        for side, auc in zip(sides, (0.5, 0.6 + seed / 10), strict=True):
            one = side["leakage"][0] | {"attack": "internal", "auc": auc}
            side["leakage"] = [one, one | {"attack": "similarity", "auc": auc - 0.1}]
        few = {"gaussian scale=0.1": sides[seed:], "gaussian scale=1.0": sides[:1]}
        return report | {"defended": few.get(point, [])}

    (row,) = tables(made(studies, tmp_path / "OUT", edit=edit, seeds=2))[title]
    assert row["defence"] == "gaussian scale=0.1" and row["models"] == "1"
    assert row["mean AUC of defended clients, 95 %"] == "0.500"
    assert row["mean AUC of undefended clients, 95 %"].startswith("0.650 [")
    assert row["difference, 95 %"] == "-0.100"


# With ties, and an AUC under 0.5, which is no less of a leak.
TIED = {
    BARE: (0.70, 0.65, 0.80), "gaussian scale=0.01": (0.45, 0.40, 0.78),
    "gaussian scale=0.1": (0.50, 0.50, 0.78), "gaussian scale=1.0": (0.50, 0.51, 0.60),
    LEAST: (0.60, 0.60, 0.78), "dpsgd noise_multiplier=9.0": (0.55, 0.52, 0.79),
}  # fmt: skip


@pytest.mark.parametrize("numbers", [PLANTED, TIED])
def test_front__is_what_a_naive_search_finds(
    numbers: Numbers, studies: Studies, tmp_path: Path
) -> None:
    study = made(studies, tmp_path / "OUT", numbers)
    places = {label: (max(a, b, 0.5), knn) for label, (a, b, knn) in numbers.items()}
    naive = {
        label for label, (auc, knn) in places.items()
        if not any(a <= auc and k >= knn and (a, k) != (auc, knn) for a, k in places.values())
    }  # fmt: skip
    shown = column(study, "Pareto front")
    assert {point for point, front in shown.items() if front == "yes"} == naive


def told(aucs: Mapping[str, list[float]]) -> tuple[str, list[str]]:
    """The least leaking point, and those that a one-sided paired t test at 0.05 over the number of
    the others does not tell from it."""
    least = min(aucs, key=lambda point: max(0.5, float(np.mean(aucs[point]))))
    alike = []
    for point, own in aucs.items():
        more = np.round(np.subtract(own, aucs[least]), 6)
        equal = np.ptp(more) == 0
        p = float(more[0] <= 0) if equal else ttest_1samp(more, 0, alternative="greater").pvalue
        if point != least and p > 0.05 / (len(aucs) - 1):
            alike.append(point)
    return least, alike


def test_choice__the_least_leaking_and_what_cannot_be_told_apart(whole: StudyResult) -> None:
    """0.95 of 0.80 is 0.76: the strong ones are out. dpsgd leaks least; gaussian 0.1 is 0.005 off,
    the others 0.095 and more with an error of 0.0141, so that t is 6.7 and 7.4, where one side of
    0.05 / 3 asks 3.2 of four degrees of freedom."""
    assert f"{LEAST} leaks least of the defences that keep kNN within 5 %" in whole.sentence
    assert "leaks less than no defence, but not measurably less than gaussian scale=0.1." in (
        whole.sentence
    )
    assert bold(whole) == ["gaussian scale=0.1", LEAST]
    assert whole.about["notes"][0].startswith("Choosing a defence by its result on the members")


@pytest.mark.parametrize(
    "draw", [0, 1, *(pytest.param(n, marks=pytest.mark.slow(seconds=1)) for n in range(2, 6))]
)
def test_choice__is_what_a_naive_twin_finds(draw: int, studies: Studies, tmp_path: Path) -> None:
    """Each candidate makes the others harder to tell: of draw 0 there are two, t is 2.6 with four
    degrees of freedom, where one side of 0.05 asks 2.13 and two sides 2.78; of draw 1 four, and one
    side of 0.05 / 3 asks 3.19. The others are drawn."""
    rng, names = np.random.default_rng(draw), [*PLANTED]
    near = 0.6 + 2.6 * np.sqrt(0.001 / 4 / 5) + np.array(WAVE)
    rows: list[Any] = [[0.6] * SEEDS, [0.9 + w for w in WAVE], [0.95 + w for w in WAVE]]
    rows = [near, *rows[: 1 if draw == 0 else 3]]
    if draw > 1:
        rows = [rng.normal(0.75, 0.005, SEEDS), *rng.normal(0.65, 0.03, (4, SEEDS))]
    aucs = {name: [round(float(a), 6) for a in row] for name, row in zip(names, rows, strict=False)}

    def edit(point: str, seed: int, report: Any) -> Any:
        for row, less in zip(report["attacks"], (0.0, 0.1), strict=True):
            row["auc"] = aucs.get(point, [0.5] * SEEDS)[seed] - less
        report["utility"]["knn"] = 0.8 if point in aucs else 0.1
        return report

    study = made(studies, tmp_path / "OUT", edit=edit)
    least, alike = told(aucs)
    assert f"{least} leaks least of the defences" in study.sentence
    others = [name for name in alike if name != BARE]
    listed = " and ".join(filter(None, [", ".join(others[:-1]), *others[-1:]]))
    if BARE in alike:
        said = f"does not leak measurably less than {BARE}{listed and f' or than {listed}'}."
    else:
        said = f"it leaks less than {BARE}" + (
            f", but not measurably less than {listed}."
            if listed
            else " and than each other defence that keeps kNN."
        )
    assert said in study.sentence
    assert bold(study) == ([] if BARE in alike else [n for n in names if n in {least, *alike}])


def test_choice__at_five_percent_of_the_undefended_use(studies: Studies, tmp_path: Path) -> None:
    """Those that keep less, one of which a run failed and one whose runs are void may not be
    chosen, however little they leak."""
    knn = {"gaussian scale=0.01": 0.76, "gaussian scale=0.1": 0.7601, "gaussian scale=1.0": 0.7599}
    auc = {BARE: 0.7, "gaussian scale=0.01": 0.6, "gaussian scale=0.1": 0.601}

    def edit(point: str, seed: int, report: Any) -> Any:
        for row in report["attacks"]:
            row["auc"] = round(auc.get(point, 0.52) + WAVE[seed], 6)
        report["utility"]["knn"] = knn.get(point, 0.8)
        if point == "dpsgd noise_multiplier=9.0" and seed == 1:
            report["verdict_code"] = "collapsed"
        return "round 1: <NaN>" if (point, seed) == (LEAST, 1) else report

    study = made(studies, tmp_path / "OUT", edit=edit)
    assert "gaussian scale=0.01 leaks least of the defences that keep kNN" in study.sentence
    assert column(study, "failed")[LEAST] == "1"
    none = made(
        studies,
        tmp_path / "OUT",
        edit=lambda point, seed, report: edit(
            point,
            seed,
            report if point not in [*knn][:2] else report | {"verdict_code": "collapsed"},
        ),
    )
    assert "No tested defence keeps kNN within 5 % of the undefended 0.80." in none.sentence


def wide(point: str, seed: int, report: Any) -> Any:
    """Seeds that differ so much that three of them decide nothing, though each run leaks."""
    for one in report["attacks"]:
        one["auc"] = min(1.0, 0.7 + 4 * (one["auc"] - 0.7))
    return report | {"verdict_code": "leaks"}


def weak(point: str, seed: int, report: Any) -> Any:
    """AUCs next to 0.5, of a run that leaks all the same."""
    for one in report["attacks"]:
        one["auc"] = 0.5 + (one["auc"] - 0.7) / 10
    return report | {"verdict_code": "leaks"}


def leaks(point: str, seed: int, report: Any) -> Any:
    return report | {"verdict_code": "leaks"}


def promises_little(point: str, seed: int, report: Any) -> Any:
    if point == LEAST:
        report["clients"][0]["defence"]["epsilon"]["value"] = 21.0
    return report


SENTENCES: dict[str, tuple[Numbers, Edit | None, int]] = {
    "does not leak": ({BARE: (0.50, 0.50, 0.80)}, None, 5),
    "none keeps kNN": ({BARE: (0.70, 0.65, 0.90)}, None, 5),
    "a larger loss": ({LEAST: (0.5, 0.5, 0.761)}, None, 5),
    "not less than no defence": (
        {LEAST: (0.68, 0.6, 0.79), "gaussian scale=0.1": (0.7, 0.7, 0.5)}, None, 5
    ),
    "no defence is least": (
        {LEAST: (0.75, 0.6, 0.79), "gaussian scale=0.1": (0.75, 0.7, 0.8),
         "gaussian scale=0.01": (0.75, 0.7, 0.8)}, None, 5
    ),
    "too few seeds": ({}, wide, 3),
    "weak": ({}, weak, 5),
    "one seed": ({}, None, 1),
    "one seed that leaks": ({}, leaks, 1),
    "an epsilon over 20": ({}, promises_little, 5),
    "no run": ({}, None, 0),
}  # fmt: skip
CHOSEN = {"a larger loss", "an epsilon over 20"}


@pytest.mark.parametrize("case", SENTENCES)
def test_sentence__says_what_the_models_tell(
    case: str, studies: Studies, tmp_path: Path, snapshot: Snapshot
) -> None:
    """What each run found stands beside what the seeds show, and neither denies the other."""
    numbers, edit, seeds = SENTENCES[case]
    study = made(studies, tmp_path / "OUT", numbers, edit, seeds)
    snapshot(study.sentence)
    assert bool(bold(study)) == (case in CHOSEN)


def test_collapsed_runs__void_their_cells(studies: Studies, tmp_path: Path) -> None:
    """Also those whose attacks tell members apart: of such an encoder this says nothing."""
    place, void = "gaussian scale=0.1", "3 of 3 void: collapsed"

    def collapse(point: str, seed: int, report: Any) -> Any:
        if point == place:
            report["verdict_code"] = "leaks" if seed else "collapsed"
            report["health"] = {**report["health"], "collapsed": True}
        return report

    study = made(studies, tmp_path / "OUT", edit=collapse, seeds=3)
    row = next(row for row in tables(study)[MAIN] if row["defence"] == place)
    assert {point: study.void(point) for point in PLANTED if study.void(point)} == {place: void}
    assert (row["best attack"], row["Pareto front"]) == ("–", "no")
    assert void in row["AUC minus undefended, 95 %"] and row["verdicts"] == "collapsed 3"
    assert row["weighted kNN, 95 %"].startswith("0.770 [")
    texts = study.figure("tradeoff").axes[0].get_legend_handles_labels()[1]
    assert f"{place}: {void}" in texts
    latex = next(line for line in study.to_latex().splitlines() if line.startswith(place))
    assert f"– ({void})" in latex and "0.5" not in latex
    assert "of 3 of 18 runs, which are left out (collapsed 3)." in study.sentence


def test_figure__joins_each_defence_and_names_its_strengths(whole: StudyResult) -> None:
    axes = whole.figure("tradeoff").axes[0]
    names = {str(line.get_label()) for line in axes.lines}
    lines = {"no defence", "gaussian", "dpsgd", "Pareto front", "95 % of the undefended kNN"}
    assert lines <= names
    assert [text.get_text() for text in axes.texts] == ["0.01", "0.1", "1.0", "1.0", "9.0"]
    places: list[Any] = [*axes.texts]
    for point, place in zip([*PLANTED][1:], places, strict=True):
        assert place.xy == pytest.approx((PLANTED[point][2], max(PLANTED[point][:2])))


def test_rename__reaches_defences_and_the_legend(whole: StudyResult) -> None:
    """What is undefended stays so, by whatever name."""
    names = {"gaussian": "Gaussian noise", "dpsgd": "DP-SGD", "no defence": "nothing"}
    paper = whole.rename(names | {"scale": "sigma", "similarity": "cosine"})
    points = [*column(paper, "best attack")]
    named = ["nothing", "Gaussian noise sigma=0.01", "DP-SGD noise_multiplier=1.0"]
    assert [points[i] for i in (0, 1, 4)] == named
    legend = {text.get_text() for text in paper.figure("tradeoff").legends[0].get_texts()}
    assert {"nothing", "Gaussian noise", "DP-SGD"} <= legend
    assert not legend & {"gaussian", "dpsgd", "no defence"}
    sentence = paper.views["tradeoff"].sentence(paper)
    assert "DP-SGD noise_multiplier=1.0 leaks least" in sentence
    assert "less than nothing, but" in sentence and "cosine has AUC" in sentence
    with pytest.raises(InputError, match="unknown name of this study 'none'; did you mean"):
        whole.rename({"none": "off"})
    text = paper.to_latex()
    assert "DP-SGD" in text and "DP-SGD" not in whole.to_latex()
    assert "hold for all 12 AUCs together" in text
    assert text.index("\\bottomrule") < text.index("\\multicolumn{5}")
