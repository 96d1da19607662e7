"""What every attack promises, as functions: `check_attack` runs them on a class or an instance."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import ActiveAttack, Attack, Known, NotFitted, Scores
from fedmia.seeding import rng
from fedmia.ssl.base import Encoder
from fedmia.testing.material import (
    VIEWS,
    changed,
    everything,
    global_seed,
    instance,
    least_view,
    renewed,
    run,
    sentence,
    small_moco,
    small_shadows,
    some_known,
    textures,
)
from fedmia.threat import BudgetError, ClientView
from fedmia.threat.signals import Signals

# Networks hardly trained keep the same promises.
BRIEF = {"steps": 3, "epochs": 3, "crops": 8, "downstream_images": 60, "views": 8, "pairs": 1}


class Usual(NamedTuple):
    """The scores of a run, and the queries that it cost."""

    scores: Scores
    queries: int


class AttackCase:
    """An attack, and what its checks are made of: a tiny MoCo, images, views.

    Args:
        attack: a class, taken with its defaults but trained briefly, or an instance, as it is.
    """

    def __init__(self, attack: Attack | type[Attack]) -> None:
        self._first: Attack = instance(attack, Attack, BRIEF)
        self.cls, self.name = type(self._first), type(self._first).__name__
        self.images, self.held = textures(20), textures(14, seed=2)
        least = self.cls.least_known
        self.known, self.swapped = some_known(least), some_known(least, swap=True)
        self.method = small_moco()
        self._usual: dict[str, Usual] = {}

    @cached_property
    def shadows(self) -> Any:
        """The attacker's own encoders, for attacks that read them."""
        return small_shadows()

    def attack(self, **options: Any) -> Attack:
        """A new one, with those of `options` that it has."""
        new: Attack = renewed(self._first, **options)
        return new

    def view(self, **more: Any) -> Any:
        """A new view, the least that the attack says is enough."""
        own = {"held": self.held, "shadows": self.shadows}
        return least_view(self.attack(), self.method, self.images, **own, **more)

    def scores(self, attack: Attack, view: Any, known: Known | None = None) -> Scores:
        """Of the images under test, after a fit with the usual seed."""
        attack.fit(view, known or self.known, rng(0, "fit"))
        return attack.score(view, self.images)

    def usual(self, **options: Any) -> Usual:
        """Scores and queries of a new attack on a new view, computed once."""
        attack = self.attack(**options)
        if repr(attack) not in self._usual:
            view = self.view()
            with global_seed(1):
                scores = self.scores(attack, view)
            kind = type(scores).__name__
            sentence(kind == "ndarray", f"{self.name}: score returns a {kind}, not a NumPy array")
            self._usual[repr(attack)] = Usual(np.array(scores), view.queries)
        return self._usual[repr(attack)]

    def same(self, got: Scores, want: Scores, text: str, atol: float = 0.0) -> None:
        """Refuse scores further than `atol` from others; says by how much."""
        found, wanted = np.shape(got), np.shape(want)
        sentence(found == wanted, f"{self.name}: scores are of shape {found}, not {wanted}")
        gap = float(np.abs(np.asarray(got) - want).max())
        sentence(gap <= atol, f"{self.name}: {text} (largest change {gap:.2g})")


@contextmanager
def passed_images() -> Iterator[list[int]]:
    """Counts the images that pass through encoders meanwhile, batch by batch."""
    passed: list[int] = []
    normalise = Encoder.normalise

    def counted(self: Encoder, pixels: Tensor) -> Tensor:
        if bool(pixels.any()):  # `features` asks for widths with one black image: no query
            passed.append(len(pixels))
        return normalise(self, pixels)

    with patch.object(Encoder, "normalise", counted):
        yield passed


class Forgetful(Signals):
    """Rows that are computed again whenever they are asked for."""

    def get(
        self, key: tuple[object, ...], images: Tensor, compute: Callable[[Tensor], Tensor]
    ) -> Tensor:
        return compute(images)


# -- the checks ------------------------------------------------------------------------------------


def declares_paper_needs_and_signatures(case: AttackCase) -> None:
    """Its class says where it is from, which view it needs, and takes no truth."""
    cls, name = case.cls, case.name
    paper = getattr(cls, "paper", "")
    sentence(paper and "\n" not in paper, f"{name}.paper must say where it is from, in one line")
    sentence(getattr(cls, "needs", None) in VIEWS, f"{name}.needs must be one of {list(VIEWS)}")
    taken = {"name", "learns"} & set(vars(cls)["__dataclass_fields__"])
    sentence(not taken, f"{name}: an option cannot be called {taken}, which every attack has")
    if issubclass(cls, ActiveAttack):
        sentence(cls.needs.vantage == "client", f"{name} is active: its vantage must be 'client'")
    for method, wanted in (("fit", "self, view, known, rng"), ("score", "self, view, images")):
        found = ", ".join(inspect.signature(getattr(cls, method)).parameters)
        sentence(found == wanted, f"{name}.{method} must take ({wanted}), not ({found})")


def scores_are_one_finite_number_an_image(case: AttackCase) -> None:
    """(N,) float64."""
    got, n = case.usual().scores, len(case.images)
    sentence(got.shape == (n,), f"{case.name}: scores are of shape {got.shape}, not ({n},)")
    sentence(got.dtype == np.float64, f"{case.name}: scores are {got.dtype}, not float64")
    sentence(np.isfinite(got).all(), f"{case.name}: scores are not finite")


def scores_repeat_with_the_seed(case: AttackCase) -> None:
    """To the bit, whatever the global generators hold."""
    want = case.usual().scores
    for seed, text in (
        (1, "two fits with one seed give different scores"),
        (2, "draws from the global random generators; use the rng that fit is given"),
    ):
        with global_seed(seed):
            got = case.scores(case.attack(), case.view())
        case.same(got, want, text)


def scores_read_no_truth_off_positions(case: AttackCase) -> None:
    """Of copies of one image the first half would be members, were they given members first."""
    view, attack = case.view(), case.attack()
    case.scores(attack, view)
    got = attack.score(view, case.images[:1].repeat(20, 1, 1, 1))
    case.same(
        got,
        np.full_like(got, got[0]),
        "score reads the truth off positions: copies of one image score differently, members "
        "first other than shuffled",
        1e-6,
    )


def scores_follow_the_order_of_images(case: AttackCase) -> None:
    """The order of candidates, and of a client's targets, only permutes."""
    attack = case.attack(batch=8)  # fewer than the images: batches must not follow the order
    view = case.view()
    want = case.scores(attack, view)
    order = torch.from_numpy(rng(0, "order").permutation(len(case.images)))
    got = attack.score(view, case.images[order])
    case.same(got, want[order], "the scores depend on the order of the candidates", 1e-6)
    chosen = getattr(attack, "chosen", None)  # of an attack that takes its targets in turn
    some = chosen is not None and not chosen(case.images, 0).all()
    if isinstance(view, ClientView) and not some:  # else the order says who is attacked when
        view.targets = case.images[order]
        got = attack.score(view, case.images)
        case.same(got, want, "the scores depend on the order of the targets", 1e-6)


def scores_of_a_subset_are_the_whole_ones(case: AttackCase) -> None:
    """An attack that works on batches of images (its option `batch`) keeps this at batch 1."""
    attack, view = case.attack(batch=1), case.view()
    want, some = case.scores(attack, view), [17, 3, 8]
    got = attack.score(view, case.images[some])
    case.same(got, want[some], "an image's score depends on what else is scored", 1e-5)


def fit_alone_decides_the_scores(case: AttackCase) -> None:
    """What was scored before plays no part."""
    attack, view = case.attack(batch=1), case.view()
    attack.fit(view, case.known, rng(0, "fit"))
    attack.score(view, case.images.flip(0)[:9])
    got = attack.score(view, case.images)
    case.same(got, case.usual(batch=1).scores, "a call of score changes later scores", 1e-6)


def fit_again_forgets(case: AttackCase) -> None:
    """A fit on other images leaves nothing behind."""
    attack, view = case.attack(), case.view()
    attack.fit(view, case.swapped, rng(1, "fit"))
    got = case.scores(attack, view)
    case.same(got, case.usual().scores, "a second fit does not forget the first")


def learns_says_whether_known_images_matter(case: AttackCase) -> None:
    """One that says no gives the same scores when their sides change places."""
    attack = case.attack()
    if not attack.learns:
        got = case.scores(attack, case.view(), case.swapped)
        text = "says that it does not learn, but exchanging the known images changes its scores"
        case.same(got, case.usual().scores, text)


def score_before_fit_is_refused(case: AttackCase) -> None:
    """By NotFitted, which names the attack; features and by_client too."""
    attack, view = case.attack(), case.view()
    for method in ("score", "features", "by_client"):
        if method == "score" or getattr(case.cls, method) is not getattr(Attack, method):
            try:
                getattr(attack, method)(view, case.images)
            except NotFitted as error:
                sentence(attack.name in str(error), f"{case.name}: NotFitted does not name it")
            else:
                raise AssertionError(f"{case.name}: {method} works before fit")


def target_is_left_untouched(case: AttackCase) -> None:
    """Weights, gradients, local state, images, and what was sent."""
    attack, view = case.attack(), case.view()
    images, before = case.images.clone(), everything(view._method)
    held = {r: dict(s) for r, s in getattr(view, "sent", {}).items()}
    kept = {r: {n: t.clone() for n, t in s.items()} for r, s in held.items()}
    case.scores(attack, view)
    wrong = changed(before, everything(view._method))
    sentence(wrong is None, f"{case.name} changes its target: {wrong} differs after score")
    left = [n for n, w in view._method.named_parameters() if w.grad is not None]
    sentence(not left, f"{case.name} changes its target: it leaves a gradient in {left[:1]}")
    sentence(torch.equal(images, case.images), f"{case.name} changes the images that it scores")
    for round, state in kept.items():
        wrong = changed(state, view.sent[round])
        sentence(wrong is None, f"{case.name} changes what was sent in round {round}: {wrong}")


def queries_are_what_passes_through(case: AttackCase) -> None:
    """Nothing is remembered: an attack may read one row twice (a view's cosines, its loss)."""
    asked = case.usual().queries  # and rows of shadows, which cost no query, are known by now
    alone = case.view(signals=Forgetful())
    with passed_images() as passed:
        case.scores(case.attack(), alone)
    counted, found = alone.queries, sum(passed)
    text = f"{case.name}: {found} images passed through the encoder but {counted} queries were"
    sentence(counted == found, f"{text} counted")
    sentence(counted == asked > 0, f"{case.name}: {asked} queries at first and {counted} again")
    shared = Signals()
    for _ in range(2):  # the second finds its rows there: it counts all the same
        view = case.view(signals=shared)
        case.scores(case.attack(), view)
        text = f"{case.name}: {view.queries} queries where rows are shared, {asked} alone"
        sentence(view.queries == asked, text)


def budget_is_kept(case: AttackCase) -> None:
    """Exactly enough changes nothing; one query less is refused."""
    want, asked = case.usual()
    enough, short = case.view(budget=asked), case.view(budget=asked - 1)
    case.same(case.scores(case.attack(), enough), want, "a budget that suffices changes the scores")
    sentence(enough.remaining == 0, f"{case.name}: {enough.remaining} queries left of its own")
    try:
        case.scores(case.attack(), short)
    except BudgetError:
        text = f"{case.name} exceeds its budget of {asked - 1} queries: {short.queries}"
        sentence(short.queries < asked, text)
    else:
        raise AssertionError(f"{case.name} exceeds its budget of {asked - 1} queries")


def pickle_keeps_options_and_fit(case: AttackCase) -> None:
    """A fitted attack comes back as it was."""
    attack, view = case.attack(), case.view()
    want = case.scores(attack, view)
    try:
        back = pickle.loads(pickle.dumps(attack))
    except Exception as error:  # whatever an attribute raises
        raise AssertionError(f"{case.name} cannot be pickled once fitted: {error}") from error
    case.same(back.score(view, case.images), want, "pickling changes the scores")


def features_are_three_finite_columns(case: AttackCase) -> None:
    """Where it has any."""
    if case.cls.features is Attack.features:
        return
    attack, view = case.attack(), case.view()
    case.scores(attack, view)
    found = attack.features(view, case.images)
    if found is None:
        return
    (names, table), shape = found, (len(case.images), 3)
    sentence(len(set(names)) == 3, f"{case.name}: features must have three names, got {names}")
    sentence(table.shape == shape, f"{case.name}: features are {table.shape}, not {shape}")
    sentence(np.isfinite(table).all(), f"{case.name}: features are not finite")


def by_client_has_a_finite_score_of_each_image(case: AttackCase) -> None:
    """Where it tells clients apart; the order of images is not read."""
    if case.cls.by_client is Attack.by_client:
        return
    attack, view = case.attack(), case.view()
    case.scores(attack, view)
    told = attack.by_client(view, case.images)
    if told is None:
        return
    ids, found = told
    clients = {c for r in view.updates.values() for c in r}
    distinct = ids.dtype == np.int64 and len(set(ids.tolist())) == len(ids)
    text = f"{case.name}: by_client must name distinct clients of {sorted(clients)}, got {ids}"
    sentence(distinct and set(ids.tolist()) <= clients, text)
    few = f"{case.name}: by_client names {len(ids)} clients, needs {attack.least_clients}"
    sentence(len(ids) >= attack.least_clients, few)
    right = found.shape == (len(ids), len(case.images)) and found.dtype == np.float64
    text = f"{case.name}: by_client scores must be finite float64 (clients, images)"
    sentence(right and np.isfinite(found).all(), text)
    again = attack.by_client(view, case.images.flip(0))
    assert again is not None
    text = "by_client depends on the order of the candidates"
    case.same(again[1], found[:, ::-1], text, 1e-6)


ATTACK_CHECKS: tuple[Callable[[AttackCase], None], ...] = (
    declares_paper_needs_and_signatures,
    score_before_fit_is_refused,
    target_is_left_untouched,
    scores_are_one_finite_number_an_image,
    scores_repeat_with_the_seed,
    scores_read_no_truth_off_positions,
    scores_follow_the_order_of_images,
    scores_of_a_subset_are_the_whole_ones,
    fit_alone_decides_the_scores,
    fit_again_forgets,
    learns_says_whether_known_images_matter,
    queries_are_what_passes_through,
    budget_is_kept,
    pickle_keeps_options_and_fit,
    features_are_three_finite_columns,
    by_client_has_a_finite_score_of_each_image,
)


def check_attack(attack: Attack | type[Attack]) -> None:
    """Check that an attack keeps every promise of `fedmia.attacks.base`; needs no data.

    Raises:
        AssertionError: one sentence that says which promise it breaks.
    """
    run(ATTACK_CHECKS, AttackCase, attack)
