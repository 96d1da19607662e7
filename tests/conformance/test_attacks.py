"""Every attack in the registry keeps the same promises, with exactly the view that it asks for."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia import registry
from fedmia.attacks.base import ActiveAttack, Attack, Known, NotFitted, Scores, Turn
from fedmia.seeding import rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder, SSLMethod
from fedmia.ssl.moco import MomentumContrast
from fedmia.threat import BlackBox, BudgetError, ClientView, ServerView, WhiteBox
from fedmia.threat.signals import Signals

MakeView = Callable[..., Any]
ATTACKS = registry.names("attack")
AUGMENT = Augment(hue=0.1)
THREATS = [view.threat for view in (BlackBox, WhiteBox, ClientView, ServerView)]
every_attack = pytest.mark.parametrize("name", ATTACKS)


# Networks hardly trained keep the same promises; null and oracle tests take the defaults.
BRIEF = {"steps": 3, "epochs": 3, "crops": 8, "downstream_images": 60, "views": 8, "pairs": 1}


def build(name: str, **options: Any) -> Attack:
    """The attack with its defaults, its own network trained briefly, and those of `options` that
    it has."""
    fields = {f.name: f.default for f in dataclasses.fields(registry.load("attack", name))}
    numbers = {k: v for k, v in fields.items() if isinstance(v, int)}
    brief = {k: v for k, v in BRIEF.items() if numbers.get(k, 0) > v}
    given = {k: v for k, v in options.items() if k in fields}
    attack: Attack = registry.build("attack", name, brief | given)
    return attack


def fit_score(attack: Attack, view: Any, known: Known, images: Tensor) -> Scores:
    attack.fit(view, known, rng(0, "fit"))
    return attack.score(view, images)


def everything(method: SSLMethod) -> dict[str, Tensor]:
    state = method.state_dict() | method.local_state()
    return {name: tensor.clone() for name, tensor in state.items()}


class Usual(NamedTuple):
    """The scores of a run, and the queries that it cost."""

    scores: Scores
    queries: int


class Forgetful(Signals):
    """Rows that are computed again whenever they are asked for."""

    def get(
        self, key: tuple[object, ...], images: Tensor, compute: Callable[[Tensor], Tensor]
    ) -> Tensor:
        return compute(images)


@pytest.fixture(scope="module")
def moco(make_moco: Callable[..., MomentumContrast]) -> MomentumContrast:
    return make_moco()


@pytest.fixture(scope="module")
def usual(
    make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known
) -> Callable[..., Usual]:
    """`usual(name, **options)`: a new attack fitted and asked on a new view, computed once."""
    found: dict[str, Usual] = {}

    def run(name: str, **options: Any) -> Usual:
        attack = build(name, **options)
        key = repr(attack)
        if key not in found:
            np.random.seed(1)
            torch.manual_seed(1)
            view = make_view(attack, moco, images)
            scores = fit_score(attack, view, known, images)
            scores.setflags(write=False)
            found[key] = Usual(scores, view.queries)
        return found[key]

    return run


@every_attack
def test_score__one_finite_float64_an_image(
    name: str, usual: Callable[..., Usual], images: Tensor
) -> None:
    got = usual(name).scores
    assert got.shape == (len(images),) and got.dtype == np.float64
    assert np.isfinite(got).all()
    assert len(np.unique(got)) > 10


@every_attack
def test_score__same_seed_same_scores(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known,
    usual: Callable[..., Usual]) -> None:  # fmt: skip
    want = usual(name).scores
    np.random.seed(2)  # `usual` has 1: the global generators play no part
    torch.manual_seed(2)
    attack = build(name)
    got = fit_score(attack, make_view(attack, moco, images), known, images)
    np.testing.assert_array_equal(got, want)


@every_attack
def test_score__order_of_candidates_and_targets_only_permutes(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    """Nor can an attack read the truth off an order, members first or last."""
    attack = build(name, batch=8)  # fewer than the images: batches must not follow the order
    view = make_view(attack, moco, images)
    want = fit_score(attack, view, known, images)
    order = torch.from_numpy(rng(0, "order").permutation(len(images)))
    np.testing.assert_allclose(attack.score(view, images[order]), want[order], atol=1e-6)
    if isinstance(view, ClientView):
        view.targets = images[order]
        np.testing.assert_allclose(attack.score(view, images), want, atol=1e-6)


@every_attack
def test_score__of_a_subset_is_the_whole_ones(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    """What else is scored changes nothing. An attack that works on batches of the images under
    test (those of its option `batch`) keeps this image by image at batch 1."""
    attack = build(name, batch=1)
    view = make_view(attack, moco, images)
    want = fit_score(attack, view, known, images)
    some = torch.tensor([17, 3, 8])
    np.testing.assert_allclose(attack.score(view, images[some]), want[some], atol=1e-5)


@every_attack
def test_score__is_asked_without_truth(name: str) -> None:
    cls = registry.load("attack", name)
    assert list(inspect.signature(cls.score).parameters) == ["self", "view", "images"]
    assert list(inspect.signature(cls.fit).parameters) == ["self", "view", "known", "rng"]


@every_attack
def test_fit__candidates_play_no_part(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known,
    usual: Callable[..., Usual]) -> None:  # fmt: skip
    """Fitted once, an attack scores any candidates by what it fitted on the known images only."""
    attack = build(name, batch=1)
    view = make_view(attack, moco, images)
    attack.fit(view, known, rng(0, "fit"))
    attack.score(view, images.flip(0)[:9])
    np.testing.assert_allclose(attack.score(view, images), usual(name, batch=1).scores, atol=1e-6)


@every_attack
def test_fit__twice_forgets_the_first(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known,
    usual: Callable[..., Usual]) -> None:  # fmt: skip
    attack = build(name)
    view = make_view(attack, moco, images)
    attack.fit(view, Known(known.nonmembers, known.members), rng(1, "fit"))
    np.testing.assert_array_equal(fit_score(attack, view, known, images), usual(name).scores)


@every_attack
def test_learns__says_whether_the_known_images_matter(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known,
    usual: Callable[..., Usual]) -> None:  # fmt: skip
    attack = build(name)
    swapped = Known(known.nonmembers, known.members)
    got = fit_score(attack, make_view(attack, moco, images), swapped, images)
    assert np.array_equal(got, usual(name).scores) != attack.learns


@every_attack
def test_score__before_fit_is_refused(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor
) -> None:
    attack = build(name)
    with pytest.raises(NotFitted, match=name):
        attack.score(make_view(attack, moco, images), images)


@every_attack
def test_target__is_left_untouched(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    attack = build(name)
    view = make_view(attack, moco, images)
    pool, before = images.clone(), everything(view._method)
    held = {r: {n: t.clone() for n, t in s.items()} for r, s in getattr(view, "sent", {}).items()}
    fit_score(attack, view, known, images)
    after = everything(view._method)
    assert all(torch.equal(after[n], t) for n, t in before.items())
    assert all(w.grad is None for w in view._method.parameters())
    assert torch.equal(images, pool)
    for round, state in held.items():
        assert all(torch.equal(view.sent[round][n], t) for n, t in state.items())  # type: ignore[attr-defined]


@every_attack
def test_queries__are_what_passed_through_the_encoder(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known,
    held: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    attack = build(name)
    shared = Signals()
    cached = make_view(attack, moco, images, signals=shared)
    fit_score(attack, cached, known, images)  # its rows are known below: it counts all the same
    asked, cached.queries = cached.queries, 0
    # An attack may read one row twice (a view's cosines, then its loss): to compare what it
    # counts with what passes through, nothing is remembered here.
    alone = make_view(attack, moco, images, signals=Forgetful())
    passed: list[int] = []
    normalise = Encoder.normalise

    def counted(self: Encoder, pixels: Tensor) -> Tensor:
        if bool(pixels.any()):  # `features` asks for widths with one black image: no query
            passed.append(len(pixels))
        return normalise(self, pixels)

    monkeypatch.setattr(Encoder, "normalise", counted)
    fit_score(attack, alone, known, images)
    assert alone.queries == sum(passed) == asked > 0
    passed.clear()
    fit_score(attack, cached, known, images)
    assert cached.queries == asked
    fresh = make_view(attack, moco, images, signals=shared)
    fit_score(attack, fresh, known, images)
    assert fresh.queries == asked
    if not isinstance(attack, ActiveAttack) and name != "ascent-static":  # those use no shared row
        bank = len(held) if hasattr(attack, "negatives") else 0
        if isinstance(fresh, ServerView):
            bank = 0  # it keys the negatives of an update only for rows that it lacks
        assert sum(passed) == 4 * bank  # fit and score of both views, and not one image more


@every_attack
def test_budget__is_kept(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known,
    usual: Callable[..., Usual]) -> None:  # fmt: skip
    attack, (want, asked) = build(name), usual(name)
    enough = make_view(attack, moco, images, budget=asked)
    np.testing.assert_array_equal(fit_score(attack, enough, known, images), want)
    assert enough.remaining == 0
    short = make_view(attack, moco, images, budget=asked - 1)
    with pytest.raises(BudgetError):
        fit_score(attack, short, known, images)
    assert short.queries <= asked - 1


@every_attack
def test_pickle__keeps_options_and_fit(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    attack = build(name)
    view = make_view(attack, moco, images)
    want = fit_score(attack, view, known, images)
    back = pickle.loads(pickle.dumps(attack))
    np.testing.assert_array_equal(back.score(view, images), want)


@every_attack
def test_features__are_three_named_finite_columns(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor
) -> None:
    attack = build(name)
    found = attack.features(make_view(attack, moco, images), images)
    if found is not None:
        names, table = found
        assert len(set(names)) == 3 and table.shape == (len(images), 3)
        assert np.isfinite(table).all()


@every_attack
def test_by_client__one_finite_score_of_each_image_for_each_client(
    name: str, make_view: MakeView, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    """Where an attack tells clients apart; its order of candidates is theirs."""
    attack = build(name)
    if type(attack).by_client is Attack.by_client:
        return
    view = make_view(attack, moco, images)
    attack.fit(view, known, rng(0, "fit"))
    told = attack.by_client(view, images)
    assert told is not None
    ids, found = told
    assert ids.dtype == np.int64 and set(ids.tolist()) <= {
        c for r in view.updates.values() for c in r
    }
    assert len(set(ids.tolist())) == len(ids) >= attack.least_clients
    assert found.shape == (len(ids), len(images)) and found.dtype == np.float64
    assert np.isfinite(found).all()
    again = attack.by_client(view, images.flip(0))
    assert again is not None
    np.testing.assert_allclose(again[1], found[:, ::-1], atol=1e-6)


@every_attack
def test_declaration__names_paper_and_a_view_that_exists(name: str) -> None:
    cls = registry.load("attack", name)
    assert cls.paper and "\n" not in cls.paper
    assert cls.needs in THREATS
    if issubclass(cls, ActiveAttack):
        assert cls.needs.vantage == "client"


@every_attack
def test_disarmed__is_the_same_attack_without_its_active_step(
    name: str, moco: MomentumContrast, images: Tensor
) -> None:
    attack = build(name, base="trained")
    if not isinstance(attack, ActiveAttack):
        return
    control = attack.disarmed()
    assert type(control) is type(attack)
    received = moco.shared_state()
    trained = {n: t + 0.01 for n, t in received.items()}
    turn = Turn(copy.deepcopy(moco), received, trained, images, None, 1, AUGMENT, rng(0, "craft"))
    sent = control.craft(turn)
    assert all(torch.equal(sent[n], t) for n, t in trained.items())  # the honest update
    assert attack.control != attack.over and attack.uploads
