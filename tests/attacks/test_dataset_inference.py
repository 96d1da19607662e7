"""Dataset inference: each statistic against a loop, the exact test against counting, no false alarm
among posers of any class mix."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom, multivariate_normal, norm
from sklearn.mixture import GaussianMixture
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks._exchange import (
    DRAWS,
    drawn_means,
    exchange_subjects,
    exchange_test,
)
from fedmia.attacks.base import Known
from fedmia.attacks.dataset_inference import DatasetInference
from fedmia.evaluation.steps.datasets import LEAST, POSERS, CandidateSets, inference
from fedmia.partitions.dirichlet import Dirichlet
from fedmia.partitions.iid import IID
from fedmia.records import SetComparison
from fedmia.seeding import rng
from fedmia.ssl.augment import Augment
from fedmia.statistics.one_subject import smallest_nameable_auc
from fedmia.statistics.pvalues import holm
from fedmia.threat import BlackBox
from tests.attacks.planted import fitted, view_of
from tests.made_up_runs import report_of


def test_exchange__counts_the_ways_to_change_places() -> None:
    """Two classes, every exchange within a class written out."""
    v = {0: ([5.0, 4.0], [1.0, 4.5, 2.0]), 1: ([7.0], [9.0, 6.0])}
    mine, rest = (np.concatenate([v[c][side] for c in v]) for side in (0, 1))
    classes = np.array([0, 0, 1]), np.array([0, 0, 0, 1, 1])

    def gap(ours: tuple[tuple[float, ...], ...]) -> float:
        total = 0.0
        for c, own in enumerate(ours):
            others = [*v[c][0], *v[c][1]]
            for one in own:
                others.remove(one)
            total += sum(one - sum(others) / len(others) for one in own)
        return total / 3

    pools = [itertools.combinations([*v[c][0], *v[c][1]], len(v[c][0])) for c in v]
    every = [gap(ours) for ours in itertools.product(*pools)]
    observed = gap(((5.0, 4.0), (7.0,)))
    want = np.mean([g >= observed - 1e-9 for g in every])
    result = exchange_test(mine, classes[0], rest, classes[1], np.random.default_rng(0))
    assert (result.n, result.others) == (3, 5)
    assert result.difference == pytest.approx(observed)
    assert result.p_value == pytest.approx(want, abs=4 * math.sqrt(want * (1 - want) / DRAWS))


def test_exchange__leaves_out_images_whose_class_no_other_has() -> None:
    draw = np.random.default_rng(0)
    mine, rest = np.array([1.0, 2.0, 99.0]), np.array([1.0, 2.0, 3.0, -99.0])
    result = exchange_test(mine, np.array([0, 0, 7]), rest, np.array([0, 0, 0, 5]), draw)
    assert (result.n, result.others) == (2, 3) and result.difference == pytest.approx(-0.5)
    nothing = exchange_test(mine, np.array([7] * 3), rest, np.zeros(4, dtype=int), draw)
    assert (nothing.p_value, nothing.difference, nothing.n) == (None, None, 0)


@pytest.mark.parametrize("count", [1, 4, 9])
def test_means__are_those_of_swaps_one_by_one(count: int) -> None:
    """Few of many are drawn in another way than many: the same numbers."""
    pool = np.random.default_rng(1).normal(size=30)
    got, stream = drawn_means(pool, count, rng(5, "x")), rng(5, "x")
    picked = [stream.integers(at, 30, DRAWS) for at in range(count)]
    for row in range(100):
        mixed = pool.tolist()
        for at in range(count):
            p = picked[at][row]
            mixed[at], mixed[p] = mixed[p], mixed[at]
        assert got[row] == pytest.approx(np.mean(mixed[:count]))


def one_class(value: float, count: int, draw: np.random.Generator, **more: Any) -> SetComparison:
    """So many images of one value against 40 others of the same class."""
    zeros, rest = np.zeros(40, dtype=int), rng(0, "rest").normal(size=40)
    return exchange_test(np.full(count, value), zeros[:count], rest, zeros, draw, **more)


def test_exchange__draws_on_where_nobody_is_as_high() -> None:
    assert one_class(9.0, 8, rng(0)).p_value == 1 / (1 + DRAWS)
    assert one_class(9.0, 8, rng(0), most=9 * DRAWS - 5).p_value == 1 / (1 + 9 * DRAWS)
    streams = rng(3), rng(3)  # that the next set draws from
    once = one_class(9.0, 8, streams[0])
    more = one_class(9.0, 8, streams[1], most=9 * DRAWS)
    assert once != more and streams[0].integers(0, 1 << 30) == streams[1].integers(0, 1 << 30)
    once, more = (one_class(0.2, 8, rng(2), most=m) for m in (DRAWS, 9 * DRAWS))
    assert once == more and (once.p_value or 0) > 0.01
    equal = exchange_test(np.ones(5), np.zeros(5, int), np.ones(40), np.zeros(40, int), rng(0))
    assert equal.p_value == 1


def test_exchange__classes_apart_raise_no_alarm_where_a_pooled_test_does() -> None:
    """Values that differ by class alone; sets of few classes. 160 posers, skewed values."""
    draw = np.random.default_rng(3)
    labels = np.repeat(np.arange(10), 60)
    values = labels + draw.exponential(size=600)
    alarms, pooled, posers = 0, 0, 0
    while posers < 160:
        chosen = draw.permutation(600)[:90]
        for part in Dirichlet(alpha=0.1)(labels[chosen], 9, draw):
            one = chosen[part]
            rest, none = np.setdiff1d(np.arange(600), one), np.zeros(600, dtype=int)
            p_values = (
                exchange_test(values[one], c[one], values[rest], c[rest], draw).p_value
                for c in (labels, none)
            )
            apart, together = (p is not None and p <= 0.05 for p in p_values)
            alarms, pooled, posers = alarms + apart, pooled + together, posers + 1
    assert binom.cdf(alarms, posers, 0.05) > 1e-3 and binom.sf(alarms - 1, posers, 0.05) > 1e-3
    assert pooled > 32


@pytest.fixture
def view(make_moco: Any) -> BlackBox:
    box: BlackBox = view_of(make_moco(), Augment(hue=0.1), BlackBox)
    return box


def unit(rows: Tensor) -> Tensor:
    return F.normalize(rows.double(), dim=-1)


@pytest.mark.parametrize("statistic", ["unary", "relationship"])
def test_relationships__are_those_of_dov4cl_written_out(
    view: BlackBox, images: Tensor, known: Known, statistic: str
) -> None:
    views = 5
    attack = fitted(DatasetInference(statistic=statistic, views=views), view, known)
    x = unit(view.embed_views(images[:4], views))
    y = unit(view.embed_views(known.nonmembers, views))
    pairs = list(itertools.combinations(range(views), 2))
    for n, score in enumerate(attack.score(view, images[:4])):
        unary = np.mean([float(x[n, i] @ x[n, j]) for i, j in pairs])
        edges = [[float(x[n, i] @ k[i]) for k in y] for i in range(views)]
        changed = np.mean([np.abs(np.array(edges[i]) - edges[j]).mean() for i, j in pairs])
        assert score == pytest.approx(unary - (changed if statistic == "relationship" else 0))


def test_likelihood__is_of_a_mixture_of_unit_vectors(
    view: BlackBox, images: Tensor, known: Known
) -> None:
    attack = fitted(DatasetInference(statistic="likelihood", components=2), view, known)
    seed = int(np.random.default_rng(0).integers(1 << 31))
    mixture = GaussianMixture(2, covariance_type="diag", max_iter=1000, random_state=seed)
    mixture.fit(unit(view.embed_plain(known.members, "avgpool")).numpy())
    rows = unit(view.embed_plain(images, "avgpool")).numpy()
    for row, score in zip(rows[:3], attack.score(view, images[:3]), strict=True):
        each = [
            multivariate_normal(m, np.diag(c)).logpdf(row)
            for m, c in zip(mixture.means_, mixture.covariances_, strict=True)
        ]
        assert score == pytest.approx(np.logaddexp.reduce(np.log(mixture.weights_) + each))


@pytest.mark.parametrize("statistic", ["unary", "likelihood"])
def test_infer__a_likelihood_is_of_images_that_did_not_fit_it(
    view: BlackBox, images: Tensor, known: Known, statistic: str
) -> None:
    attack = fitted(DatasetInference(statistic=statistic, views=4), view, known)
    questions = [(np.arange(8), np.arange(8, 20)), (np.arange(10, 20), np.arange(10))]
    draw = np.random.default_rng(1)
    inferences = attack.infer(view, images, np.zeros(20, dtype=int), questions, draw)
    assert [(t.n, t.others) for t in inferences] == (
        [(8, 12), (10, 10)] if statistic == "unary" else [(4, 12), (5, 10)]
    )
    if statistic == "unary":
        scores = attack.score(view, images)
        assert inferences[0].difference == pytest.approx(scores[:8].mean() - scores[8:].mean())


def split(members: Tensor, others: Tensor, owner: Any, kinds: int) -> Any:
    """The members, and posers among the others, as data sets of few classes each."""
    draw = rng(0)
    classes = draw.integers(0, kinds, len(members)), draw.integers(0, kinds, len(others))
    return CandidateSets(members, others, classes, owner, Dirichlet(alpha=0.3), seed=2)


def test_suspects__posers_are_non_members_dealt_like_clients(textures: Any) -> None:
    of = split(textures(24), textures(60, seed=5), np.repeat([4, 0, 2], 8), kinds=4)
    assert list(of.positions) == [0, 2, 4] and of.positions[4].tolist() == list(range(8))
    assert len(of.posing) == 3 * -(-POSERS // 3)
    for at in range(0, len(of.posing), 3):
        places = np.concatenate(of.posing[at : at + 3])
        assert len(set(places)) == 24 and places.min() >= 24 and places.max() < 84
    questions = of.questions(of.posing)
    assert len(questions) == 3 + len(of.posing)
    for own, others in questions:
        assert others.min() >= 24 and not set(own) & set(others)
    np.testing.assert_array_equal(questions[0][1], np.arange(24, 84))


def test_suspects__pose_also_where_clients_outnumber_the_non_members(textures: Any) -> None:
    """Half of the non-members, dealt to all 60 clients, would leave some with none."""
    classes = np.zeros(120, dtype=int), np.zeros(80, dtype=int)
    of = CandidateSets(
        textures(120), textures(80, seed=5), classes, np.repeat(range(60), 2), IID(), 2
    )
    assert len(of.posing) >= POSERS and {len(one) for one in of.posing} == {LEAST}


class Bright(DatasetInference):
    """Knows the brightest images."""

    name = "bright"

    def relations(self, view: Any, images: Tensor) -> Any:
        return images.double().mean(dim=(1, 2, 3)).numpy()


def test_inference__finds_the_client_whose_images_are_known(
    view: BlackBox, textures: Any, known: Known
) -> None:
    members, others = textures(24), textures(60, seed=5)
    members[8:16] = members[8:16] // 2 + 128
    of = split(members, others, np.repeat([0, 1, 2], 8), kinds=3)
    inferences = inference(Bright(), known, of, 0, view, None)
    assert [c.client for c in inferences.clients] == [0, 1, 2]
    p_values = [c.p_value for c in inferences.clients]
    assert p_values[1] <= 1 / (1 + 10 * DRAWS) and min(p_values[0], p_values[2]) > 0.001  # type: ignore[type-var]
    alarms = sum(p <= 0.05 for p in inferences.posers)
    assert binom.sf(alarms - 1, len(inferences.posers), 0.05) > 1e-3
    assert all(c.p_value_untrained is None for c in inferences.clients)


@pytest.mark.slow
def test_inference__subjects_that_nobody_trained_on_seldom_void_it(
    view: BlackBox, known: Known
) -> None:
    """All members' subjects meet the same others: their p-values are small together."""
    stream, of = rng(0, "subjects"), np.repeat(np.arange(120), 2)
    void = np.zeros(200, dtype=bool)
    for at in range(len(void)):
        level = 120 + 20 * stream.normal(size=(120, 1)) + 5 * stream.normal(size=(120, 2))
        images = np.clip(level.reshape(-1, 1, 1, 1) + stream.normal(size=(240, 3, 4, 4)), 0, 255)
        members, others = torch.from_numpy(images.astype(np.uint8)).split([200, 40])
        classes = np.zeros(200, dtype=int), np.zeros(40, dtype=int)
        owner, subjects = of[:200], (of[:200], of[200:])
        sets = CandidateSets(members, others, classes, owner, IID(), 0, subjects)
        told = report_of(inferences=[inference(Bright(), known, sets, at, view, view)])
        void[at] = told.dataset_inference[0].void
    assert void.sum() <= 2


def test_infer__p_values_of_many_clients_outlast_holms_correction(
    view: BlackBox, known: Known
) -> None:
    """Of 300 clients one is known; 1 / 2000 is not small among 300."""
    classes = np.zeros(4 * 300 + 60, dtype=int)
    images = torch.from_numpy(rng(0).integers(0, 200, (len(classes), 3, 4, 4), dtype=np.uint8))
    images[28:32] = 255
    sets = np.arange(1200).reshape(300, 4)
    inferences = fitted(Bright(), view, known).infer(
        view, images, classes, [(s, np.arange(1200, 1260)) for s in sets], rng(1)
    )
    adjusted = holm([t.p_value for t in inferences])
    assert [k for k, p in enumerate(adjusted) if p is not None and p <= 0.05] == [7]


def test_exchange__of_subjects_counts_permutations_of_subjects() -> None:
    """Of two subjects among six the two highest: one of fifteen pairs, whatever their images."""
    values, others = np.full(30, 2.0), np.repeat(np.arange(4) / 10, 25)
    subjects, theirs = np.repeat([3, 9], 15), np.repeat([1, 2, 4, 5], 25)
    result = exchange_subjects(values, subjects, others, theirs, rng(0, "exchange"))
    assert result.p_value == 1 / 15  # all are tried
    assert result.difference == pytest.approx(2 - 0.15)
    assert (result.n, result.others) == (30, 100)


def test_exchange_subjects__one_subject_that_was_not_used_is_seldom_named() -> None:
    stream, others = rng(0, "one"), np.repeat(np.arange(39), 8)
    named = {"subjects": 0, "images": 0}
    for _ in range(300):
        own_levels = stream.normal(size=(40, 1))
        mine, rest = np.split((own_levels + stream.normal(size=(40, 8))).ravel(), [8])
        own = np.full(8, 99)
        named["subjects"] += (
            exchange_subjects(mine, own, rest, others, stream).p_value or 1
        ) <= 0.05
        kinds = np.zeros(8, int), np.zeros(len(rest), int)
        named["images"] += (
            exchange_test(mine, kinds[0], rest, kinds[1], stream).p_value or 1
        ) <= 0.05
    assert named["subjects"] <= 0.08 * 300 and named["images"] > 0.14 * 300


@pytest.mark.parametrize(("own", "each"), [(1, 20), (4, 20), (20, 4)])
@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_exchange_subjects__has_its_level_whatever_subjects_have_images(
    own: int, each: int, alike: float
) -> None:
    """Of 600 true nulls beside 19 subjects at most 5 %, and 2.6 standard errors more. A mean of 1
    image beside means of 20 is the highest of all in a third of them."""
    stream, of = rng(0, "sizes", own, str(alike)), np.repeat(np.arange(20), [own, *[each] * 19])
    mine, named = of == 0, 0
    for _ in range(600):
        values = alike**0.5 * stream.normal(size=20)[of]
        values += (1 - alike) ** 0.5 * stream.normal(size=len(of))
        one = exchange_subjects(values[mine], of[mine], values[~mine], of[~mine], stream)
        assert one.p_value is not None and one.others <= 19 * min(own, each)
        named += one.p_value <= 0.05
    assert named <= 600 * 0.05 + 2.6 * (600 * 0.05 * 0.95) ** 0.5


@pytest.mark.parametrize(
    ("images", "correlation", "others", "tests"),
    [(1, 0.5, 19, 1), (4, 0.3, 60, 1), (20, 0.1, 59, 3)],
)
def test_exchange_subjects__names_as_often_as_was_foreseen(
    images: int, correlation: float, others: int, tests: int
) -> None:
    """Of 1,500 subjects that were trained on, within three standard errors."""
    stream, of = rng(0, "chance", images, others), np.repeat(np.arange(others + 1), images)
    least = smallest_nameable_auc(images, correlation, others, tests)
    assert least is not None
    shift, mine, named = 2**0.5 * norm.ppf(least), of == 0, 0
    for _ in range(1500):
        values = correlation**0.5 * stream.normal(size=others + 1)[of] + shift * mine
        values += (1 - correlation) ** 0.5 * stream.normal(size=len(of))
        one = exchange_subjects(values[mine], of[mine], values[~mine], of[~mine], stream)
        assert one.p_value is not None
        named += one.p_value * tests <= 0.05
    assert named / 1500 == pytest.approx(0.8, abs=3 * (0.8 * 0.2 / 1500) ** 0.5)
