"""What the base of all attacks sees to: when one is fitted, its name, its fewest known images."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Known, NotFitted, Scores
from fedmia.seeding import rng
from fedmia.settings import option, registry
from fedmia.settings.errors import InputError
from fedmia.threat import Threat
from tests.attacks.planted import view_of

X = torch.zeros(3, 1, 2, 2, dtype=torch.uint8)


@dataclass
class Plain(Attack):
    """Scores without looking."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    shift: float = option(0.0, "added to every score", ge=0)

    def score(self, view: Any, images: Tensor) -> Scores:
        """As many as images."""
        return np.full(len(images), self.shift)

    def features(self, view: Any, images: Tensor) -> Any:
        return ("a", "b", "c"), np.zeros((len(images), 3))


@dataclass
class Learner(Plain):
    least_known: ClassVar[int] = 2

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        if view == "broken":
            raise RuntimeError("broken")
        assert len(self.score(view, known.members)) == len(known.members)  # while it fits

    def by_client(self, view: Any, images: Tensor) -> Any:
        return None


@dataclass
class Further(Learner):
    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        super().fit(None, known, rng)
        if view == "late":
            raise RuntimeError("late")


class Fits:
    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        self.known = known


@dataclass
class Mixed(Fits, Plain):
    pass


@dataclass(frozen=True)
class Frozen(Attack):
    def score(self, view: Any, images: Tensor) -> Scores:
        return np.zeros(len(images))


KNOWN = Known(X, X)


@pytest.mark.parametrize("cls", [Plain, Learner, Further, Mixed, Frozen])
def test_fit__must_come_before_score(cls: type[Attack]) -> None:
    attack = cls()
    for method in ("score", "features", "by_client", "score_sets", "score_without"):
        if getattr(cls, method) is not getattr(Attack, method):
            with pytest.raises(NotFitted, match=f":{cls.__name__}: call fit before score$"):
                getattr(attack, method)(None, X)
    attack.fit(None, KNOWN, rng(0))
    assert len(attack.score(None, X)) == 3
    for other in (pickle.loads(pickle.dumps(attack)), copy.deepcopy(attack)):
        assert len(other.score(None, X)) == 3
    with pytest.raises(NotFitted):
        dataclasses.replace(attack).score(None, X)  # type: ignore[type-var]


@pytest.mark.parametrize(("cls", "view"), [(Learner, "broken"), (Further, "late")])
def test_fit__that_fails_forgets_the_one_before(cls: type[Attack], view: str) -> None:
    attack = cls()
    attack.fit(None, KNOWN, rng(0))
    with pytest.raises(RuntimeError, match=view):
        attack.fit(view, KNOWN, rng(0))
    with pytest.raises(NotFitted):
        attack.score(None, X)


def test_fit__refuses_too_few_known_images_where_it_learns() -> None:
    attack = Learner()
    attack.fit(None, KNOWN, rng(0))
    with pytest.raises(InputError, match="Learner needs at least 2 known members and non-members, "
                                         "got 1 and 3"):  # fmt: skip
        attack.fit(None, Known(X[:1], X), rng(0))
    with pytest.raises(NotFitted):
        attack.score(None, X)
    Plain().fit(None, Known(X[:0], X[:0]), rng(0))


def test_non_members_alone__suffice_where_the_attack_says_so() -> None:
    alone = Known(X[:0], X)
    with pytest.raises(InputError, match="Learner learns from known members, this attacker knows"):
        Learner().fit(None, alone, rng(0))
    modest = type("Modest", (Learner,), {"learns_from_members": False})()
    modest.fit(None, alone, rng(0))
    with pytest.raises(InputError, match="needs at least 2 known members and non-members, got 1"):
        modest.fit(None, Known(X[:0], X[:1]), rng(0))
    with pytest.raises(InputError, match="needs at least 2 known members and non-members, got 1"):
        modest.fit(None, Known(X[:1], X), rng(0))


def test_learns__is_read_off_fit() -> None:
    assert not Plain().learns and Learner().learns and Further().learns and Mixed().learns


def test_name__is_that_of_the_command_line() -> None:
    assert all(registry.load("attack", n)().name == n for n in registry.names("attack"))
    assert Plain().name == f"{__name__}:Plain"


@pytest.mark.parametrize(
    "name",
    ["fe-mi", "lpla", "partcrop", "partcrop-v2", "rmia", "rmia-rounds", "semi-rounds",
     "supervised-mi", "variance-only"],
)  # fmt: skip
@pytest.mark.parametrize(("m", "n"), [(1, 3), (3, 1)])
def test_built_ins__refuse_a_single_known_image(name: str, m: int, n: int) -> None:
    attack = registry.build("attack", name, {})
    with pytest.raises(InputError, match=f"^{name} needs at least 2 known .* got {m} and {n}$"):
        attack.fit(None, Known(X[:m], X[:n]), rng(0))


@pytest.mark.parametrize(
    ("name", "options"),
    [(n, {}) for n in registry.names("attack") if registry.load("attack", n).uses_shadows]
    + [("partcrop", {"setting": "shadow"}), ("supervised-mi", {"setting": "shadow"})],
)
def test_built_ins__refuse_to_go_without_shadows(
    name: str, options: dict[str, Any], make_moco: Any, images: Tensor, known: Known
) -> None:
    attack = registry.build("attack", name, options)
    with pytest.raises(InputError, match="needs shadow encoders"):
        attack.fit(view_of(make_moco(), held=images), known, rng(0))


@pytest.mark.parametrize(
    ("name", "option", "values"),
    [
        ("ascent-static", "lr", (0.0, -1.0, "fast")), ("baseline-e", "rows", (2, 4)),
        ("fe-mi", "recipe", ("x",)), ("fe-mi", "steps", (-1,)),
        ("lpla", "p", (5.1, -1.0, 0.01)), ("lpla", "tolerance", (-1.0,)),
        ("lpla", "nonmembers", ("x",)), ("partcrop", "scale_min", (0.3,)),
        ("rmia", "offline_a", (1.5,)), ("rmia", "gamma", (0.0,)),
        ("sd-mi", "anchors", (-1,)), ("sd-mi", "distance", ("cosine",)), ("sd-mi", "steps", (-1,)),
    ],
)  # fmt: skip
def test_built_ins__refuse_options_out_of_range(
    name: str, option: str, values: tuple[Any, ...]
) -> None:
    for value in values:
        with pytest.raises(InputError, match=rf"{option}\b"):
            registry.load("attack", name)(**{option: value})


def test_similarity__learns_and_needs_known_images_by_its_option(
    make_moco: Any, images: Tensor
) -> None:
    view, few = view_of(make_moco()), Known(images[:1], images[1:3])
    assert not registry.build("attack", "similarity", {}).learns
    for pairs in ("all", "top3"):
        attack = registry.build("attack", "similarity", {"pairs": pairs, "views": 3})
        assert attack.learns
        with pytest.raises(InputError, match="a classifier needs at least 2 known"):
            attack.fit(view, few, rng(0))
