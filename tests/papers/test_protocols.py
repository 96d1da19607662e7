"""Switches of a fair protocol: with none of them the plain attack, with one that alone. What the
command makes of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Known
from fedmia.attacks.lpla import LpLA
from fedmia.attacks.partcrop import PartCrop
from fedmia.attacks.sd_mi import SDMI
from fedmia.attacks.similarity import Similarity
from fedmia.data.images import digests
from fedmia.encoders.base import load
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.statistics.auc import auc
from fedmia.threat import BlackBox
from research.papers.protocols.pipeline import KINDS, SWITCHES, Pipeline
from tests.papers.finished import papers

CPU = torch.device("cpu")
STORED = Path(__file__).resolve().parents[2] / "research" / "results" / "protocols.json"
PLAN: dict[str, Any] = {
    "known": 8, "scored": 6, "members": 16, "views": 3, "crops": 4, "epochs": 4, "every": 1,
    "anchors": 4, "steps": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def sides() -> Any:
    """Random images in their roles: known and scored ones."""
    draw = np.random.default_rng(0)

    def some(count: int) -> Tensor:
        return torch.from_numpy(draw.integers(0, 256, (count, 3, 8, 8), dtype=np.uint8))

    names = ("unseen", "others", "test file", "other source")
    return {"members": (some(8), some(8)), "pairs": (some(0), some(6))} | {
        name: (some(8), some(6)) for name in names
    }


@pytest.fixture(scope="module")
def pipeline(sides: Any, make_moco: Callable[..., Any]) -> Pipeline:
    views = {
        name: BlackBox(make_moco(seed), Augment(), seed=3, device=CPU)
        for seed, name in enumerate(("trained", "untrained"))
    }
    return Pipeline(views, sides, PLAN, 3)


def names(*groups: Tensor) -> list[bytes]:
    return [name for images in groups for name in digests(images.numpy())]


def rates(members: Any, others: Any) -> dict[str, Any]:
    """Balanced accuracy of scores over 0, and the AUC."""
    accuracy = (np.mean(members > 0) + np.mean(others <= 0)) / 2
    return {"accuracy": pytest.approx(accuracy), "auc": auc(members, others)}


@contextmanager
def shown(view: BlackBox) -> Iterator[list[bytes]]:
    """The images that attacks embed whole, in order, while the context is open."""
    embed, seen = view.embed_plain, list[bytes]()

    def spy(images: Tensor, layer: str = "encoder") -> Tensor:
        seen.extend(names(images))
        return embed(images, layer)

    view.embed_plain = spy  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        view.embed_plain = embed  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("name", "attack"),
    [
        ("partcrop", PartCrop(crops=4, epochs=4)),
        ("lpla", LpLA()),
        ("sd-mi", SDMI(anchors=4, steps=4)),
        ("similarity-top3", Similarity(views=3, pairs="top3", classifier="lda")),
    ],
)
def test_without_switches__it_is_the_plain_attack(
    pipeline: Pipeline, sides: Any, name: str, attack: Attack
) -> None:
    for kind, side, view in zip(
        KINDS, ("members", "unseen", "unseen"), ("trained", "trained", "untrained"), strict=True
    ):
        seen = pipeline.views[view]
        known = Known(sides[side][0], sides["others"][0])
        attack.fit(seen, known, rng(3, "protocols", attack.name))
        scores = [attack.score(seen, sides[of][1]) for of in (side, "others")]
        assert pipeline.run(name, kind) == rates(*scores)


# Which of known members, known and scored others, in the order in which an attack is shown them, a
# switch changes.
CHANGED = {
    "views": {"known members", "members"},
    "test file": {"known others", "others"},
    "scored test file": {"others"},
    "other source": {"known others", "others"},
    "pairs": {"others"},
}


@pytest.mark.parametrize("switch", [s for s in SWITCHES if s != "random pixels"])
@pytest.mark.parametrize("kind", KINDS)
def test_switch__changes_these_images_and_no_others(
    pipeline: Pipeline, sides: Any, switch: str, kind: str
) -> None:
    view = pipeline.views["untrained" if kind == "untrained" else "trained"]
    own = "members" if kind == "trained" else "unseen"
    sizes = [8, 8, len(sides[own][1]), 6]
    by_switch = []
    for switches in ((), (switch,)):
        with shown(view) as seen:
            pipeline.run("lpla", kind, switches)
        ends = np.cumsum(sizes)
        assert len(seen) == ends[-1]
        by_switch.append([seen[end - size : end] for size, end in zip(sizes, ends, strict=True)])
    fair, other = by_switch
    want = [sides[own][0], sides["others"][0], sides[own][1], sides["others"][1]]
    assert fair == [names(images) for images in want]
    of = ("known members", "known others", "members", "others")
    changed = {n for n, one, two in zip(of, fair, other, strict=True) if one != two}
    assert changed == CHANGED.get(switch, set())
    if switch == "views":  # few crops are the whole image
        assert len({*other[0], *other[2]} & {*fair[0], *fair[2]}) <= 2
    elif changed:
        at = "test file" if "test file" in switch else switch
        assert other[3] == names(sides[at][1])
        assert "known others" not in changed or other[1] == names(sides[at][0])


def test_random_pixels__take_the_place_of_the_non_members_fitted_on(pipeline: Pipeline) -> None:
    with shown(pipeline.views["trained"]) as fair:
        pipeline.run("lpla", "placebo")
    with shown(pipeline.views["trained"]) as seen:
        pipeline.run("lpla", "placebo", ("random pixels",))
    assert not {*fair[8:16]} & {*seen} and {*fair[:8], *fair[16:]} <= {*seen}


@pytest.mark.parametrize("switches", [(), ("views",)])
def test_epoch__is_the_best_on_the_scored_images(
    pipeline: Pipeline, sides: Any, switches: Collection[str]
) -> None:
    by_length = []
    for epochs in range(1, 5):
        shorter = Pipeline(pipeline.views, sides, {**PLAN, "epochs": epochs}, 3)
        by_length.append(shorter.run("partcrop", "placebo", switches))
    assert pipeline.run("partcrop", "placebo", switches) == by_length[-1]
    best = pipeline.run("partcrop", "placebo", (*switches, "epoch"))
    assert best["accuracy"] == max(one["accuracy"] for one in by_length)


def test_epochs__of_which_every_few_are_looked_at(pipeline: Pipeline, sides: Any) -> None:
    """The best is one of the plain attack's at these epochs."""
    every = Pipeline(pipeline.views, sides, {**PLAN, "epochs": 6, "every": 2}, 3)
    plain = [
        Pipeline(pipeline.views, sides, {**PLAN, "epochs": epochs}, 3).run("partcrop", "placebo")
        for epochs in (2, 4, 6)
    ]
    assert every.run("partcrop", "placebo") == plain[-1]
    best = every.run("partcrop", "placebo", ("epoch",))
    assert best in plain and best["accuracy"] == max(one["accuracy"] for one in plain)


def test_threshold__is_the_best_on_the_scored_images(pipeline: Pipeline) -> None:
    fair, best = (
        pipeline.run("similarity", "placebo", switches) for switches in ((), ("threshold",))
    )
    assert best["auc"] == fair["auc"]
    assert best["accuracy"] >= max(fair["accuracy"], 0.5)


def test_classifier__is_the_best_on_the_scored_images(pipeline: Pipeline) -> None:
    for kind in KINDS:
        fair, best = (
            pipeline.run("similarity-top3", kind, switches) for switches in ((), ("classifier",))
        )
        assert best["accuracy"] >= fair["accuracy"]


def test_anchors__are_of_all_images_that_are_attacked(pipeline: Pipeline, sides: Any) -> None:
    """In place of known ones, which are kept for the fit."""
    view, own = pipeline.views["trained"], "unseen"
    attacked = [*sides[own], *sides["others"]]
    many = Pipeline(pipeline.views, sides, {**PLAN, "anchors": 12}, 3)
    with shown(view) as seen:
        many.run("sd-mi", "placebo", ("anchors",))
    anchors = {*seen[:12]}
    assert len(anchors) == 12 and anchors <= {*names(*attacked)}
    assert all(anchors & {*names(images)} for images in attacked)
    assert seen[12:28] == names(sides[own][0], sides["others"][0])
    assert seen[28:] == names(sides[own][1], sides["others"][1])


@pytest.mark.parametrize(
    "asked", [("lpa", "placebo", ()), ("lpla", "untraind", ()), ("lpla", "placebo", ("view",))]
)
def test_unknown_names__are_refused(pipeline: Pipeline, asked: tuple[str, str, Any]) -> None:
    with pytest.raises(InputError, match="did you mean"):
        pipeline.run(*asked)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("protocols") / "whole"
    assert papers("protocols --quiet", out).code == 0
    return out


def results(folder: Path) -> dict[str, Any]:
    """What a run wrote, but for its times."""
    stored = json.loads((folder / "protocols.json").read_text(encoding="utf-8"))
    for one in stored["encoders"]:
        del one["seconds"]
    del stored["seconds"]
    return dict(stored)


@pytest.mark.slow(seconds=5)
def test_interrupted_run__ends_as_a_whole_one(whole: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    assert papers("protocols --minutes 1e-9 --quiet", cut).code == 130
    assert not (cut / "protocols.json").exists()
    ran = papers("protocols --json", cut)
    stored, printed = results(cut), json.loads(ran.out)
    assert ran.code == 0 and stored == results(whole)
    assert printed["rows"] == stored["rows"] and printed["n"] == {"moco": 2}
    assert [e["seed"] for e in stored["encoders"]] == [6000, 6001]
    times = {path: path.stat().st_mtime_ns for path in (cut / "encoders").glob("*.json")}
    ran = papers("protocols", cut)  # nothing is measured again
    assert ran.code == 0 and {path: path.stat().st_mtime_ns for path in times} == times
    assert (cut / "protocols.md").read_text(encoding="utf-8") in ran.out


def test_numbers__are_of_images_in_roles_of_their_own(whole: Path) -> None:
    """Dealt again: half of the members are known; of the images that the encoder never saw the
    first are the placebo's members, the next the non-members."""
    stored = results(whole)
    known, scored = (stored["plan"][name] for name in ("known", "scored"))
    for encoder in stored["encoders"]:
        seed, numbers = encoder["seed"], encoder["numbers"]
        folder = whole / "encoders" / f"moco-{seed}"
        own, rest = (
            torch.from_numpy(np.load(folder / f"{side}.npz")["x"].transpose(0, 3, 1, 2).copy())
            for side in ("members", "nonmembers")
        )
        assert len(names(own, rest)) == len({*names(own, rest)})
        own = own[rng(seed, "protocols", "known").permutation(len(own))]
        rest = rest[rng(seed, "protocols", "roles").permutation(len(rest))]
        sides = {
            name: (some[:cut], some[cut:])
            for name, some, cut in (
                ("members", own, len(own) // 2),
                ("unseen", rest[: known + scored], known),
                ("others", rest[known + scored : 2 * (known + scored)], known),
            )
        }
        views = {
            name: BlackBox(load(f"{folder}@{epoch}").method, Augment(), seed=seed, device=CPU)
            for name, epoch in (("trained", 1), ("untrained", 0))
        }
        again = Pipeline(views, sides, stored["plan"], seed)
        for kind in KINDS:
            for attack in ("lpla", "sd-mi"):
                assert again.run(attack, kind) == numbers[kind][attack], (attack, kind)


def test_numbers__are_of_every_row_of_the_plan(whole: Path) -> None:
    """Of each kind that it names, beside the fair protocol of its attack."""
    stored = results(whole)
    rows = [(row["attack"], row["switch"], row["kind"]) for row in stored["rows"]]
    assert rows == [
        (row["attack"], " + ".join(row["switches"]), kind)
        for row in stored["plan"]["rows"]
        for kind in row.get("kinds", KINDS)
    ]
    for encoder in stored["encoders"]:
        for kind in KINDS:
            of = {f"{a}: {switch}" for a, switch, where in rows if where == kind}
            assert {*encoder["numbers"][kind]} == of | {a for a, *_ in rows}, kind
    for own in stored["rows"]:
        for end, measure in (("", "accuracy"), ("_auc", "auc")):
            fair, switched = (
                np.array([e["numbers"][own["kind"]][name][measure] for e in stored["encoders"]])
                for name in (own["attack"], f"{own['attack']}: {own['switch']}")
            )
            found = [own[f"{name}{end}"]["mean"] for name in ("fair", "switched", "gain")]
            want = fair.mean(), switched.mean(), (switched - fair).mean()
            assert found == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "out (--out) is missing"),
        ("--scale smal", "did you mean 'small'"),
        ("--scale small --out there", "data_dir (--data-dir) is missing"),
        ("--scale small --data-dir nowhere --out there", "no such folder"),
        ("--scale small --data-dir . --out there", "has no cifar10-train.parquet"),
        ("--encoders 1 --out there", "must be >= 2"),
        ("--encoder 2 --out there", "did you mean '--encoders'"),
        ("--out .", "already holds 'images'"),
        ("--scale small --data-dir images --out whole", "already holds other protocols"),
    ],
)
def test_input__is_refused_in_one_line(
    line: str, said: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    images(tmp_path / "images")
    (tmp_path / "whole").mkdir()
    shutil.copy(whole / "config.yaml", tmp_path / "whole")
    ran = papers(f"protocols {line}")
    assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1
    assert not Path("there").exists()


def images(folder: Path) -> Path:
    """Where the images of the small scale seem to lie."""
    folder.mkdir(exist_ok=True)
    for name in ("cifar10-train", "cifar10-test", "cifar100-train"):
        (folder / f"{name}.parquet").touch()
    (folder / "cifar100-test.parquet").touch()
    return folder


def summary(folder: Path, encoders: list[Any], each: int) -> dict[str, Any]:
    """What the command makes of encoders that are measured already."""
    there, out = images(folder / "images"), folder / "OUT"
    line = f"protocols --scale small --data-dir {there} --encoders {each} --quiet"
    assert papers(f"{line} --minutes 1e-9", out).code == 130
    (out / "encoders").mkdir(exist_ok=True)
    for one in encoders:
        own = {"last_loss": 1.0, "seconds": 1.0, "environment": "here", **one}
        (out / "encoders" / f"{one['method']}-{one['seed']}.json").write_text(json.dumps(own))
    assert papers(line, out).code == 0
    return results(out)


FAIR = (0.50, 0.52, 0.48, 0.51)


def measured(gains: tuple[float, ...]) -> list[dict[str, Any]]:
    """Four encoders, in whose numbers the test file gives LpLA so much accuracy, and costs AUC."""
    plan = json.loads(STORED.read_text(encoding="utf-8"))["plan"]
    encoders = []
    for nth, (fair, gain) in enumerate(zip(FAIR, gains, strict=True)):
        rows = {}
        for row in plan["rows"]:
            rows[row["attack"]] = {"accuracy": fair, "auc": fair + 0.01}
            rows[f"{row['attack']}: {' + '.join(row['switches'])}"] = {"accuracy": 0.5, "auc": 0.5}
        rows["lpla: test file"] = {"accuracy": fair + gain, "auc": fair}
        encoders.append({"method": ("moco", "dino")[nth % 2], "seed": 6000 + nth // 2,
                         "numbers": dict.fromkeys(KINDS, rows)})  # fmt: skip
    return encoders


def row_of(rows: list[Any], attack: str, switch: str, kind: str) -> dict[str, Any]:
    (own,) = (r for r in rows if (r["attack"], r["switch"], r["kind"]) == (attack, switch, kind))
    return dict(own)


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((0.05, 0.06, 0.04, 0.07), "undecided"),
        ((0.05, 0.0501, 0.0499, 0.05), "gives"),
        ((0.001, 0.001, 0.0, 0.001), "gives less"),
        ((0.1, -0.1, 0.05, -0.01), "undecided"),
        ((0.05, 0.05, 0.05, 0.05), "undecided"),  # all alike: no interval
    ],
)
def test_gain__with_its_simultaneous_interval(
    gains: tuple[float, ...], verdict: str, tmp_path: Path
) -> None:
    found = summary(tmp_path, measured(gains), 2)
    assert found["n"] == {"moco": 2, "dino": 2} and found["primary"] == 25
    own = row_of(found["rows"], "lpla", "test file", "placebo")
    half = scipy.stats.t.isf(0.025 / 25, 3) * np.std(gains, ddof=1) / 2
    mean = np.mean(gains)
    assert own["verdict"] == verdict and own["gain"]["mean"] == pytest.approx(mean, abs=1e-6)
    assert own["gain_auc"]["mean"] == pytest.approx(-0.01)
    assert own["fair"]["mean"] == pytest.approx(np.mean(FAIR), abs=1e-6)
    assert own["switched"]["mean"] == pytest.approx(np.mean(FAIR) + mean, abs=1e-6)
    moco, dino = np.mean(gains[::2]), np.mean(gains[1::2])
    by_method = {method: gain["mean"] for method, gain in own["by_method"].items()}
    assert by_method == pytest.approx({"moco": moco, "dino": dino}, abs=1e-6)
    other = row_of(found["rows"], "lpla", "test file", "trained")
    assert "verdict" not in other
    if half > 1e-9:
        assert own["gain"]["ci"] == pytest.approx((mean - half, mean + half), abs=1e-5)
        assert other["gain"]["ci"][0] < own["gain"]["ci"][0]  # of the larger family
    single = row_of(found["single"], "lpla", "", "placebo")
    assert (single["least"], single["greatest"]) == (0.48, 0.52)
    sd, middle = np.std(FAIR, ddof=1), np.mean(FAIR)
    near = scipy.stats.t.isf(0.025, 3) * sd * np.sqrt(1 + 1 / 4)
    assert single["sd"] == pytest.approx(sd, abs=1e-6)
    assert single["next"] == pytest.approx((middle - near, middle + near), abs=1e-5)
    page = (tmp_path / "OUT" / "protocols.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(lines) == len(found["rows"]) == 37
    (line,) = (line for line in lines if line.startswith("| `lpla` | test file | placebo |"))
    assert line.endswith(f"| {verdict} |") and f"{mean:.3f}" in line


def test_stored_numbers__are_recomputed_from_those_by_seed(tmp_path: Path) -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    again = summary(tmp_path, stored["encoders"], len(stored["encoders"]) // 2)
    for name in ("plan", "n", "primary", "secondary", "rows", "single"):
        assert again[name] == stored[name], name
    assert all(one["seed"] >= stored["plan"]["seed"] for one in stored["encoders"])
