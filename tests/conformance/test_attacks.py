"""Every attack in the registry keeps the same promises, with exactly the view that it asks for."""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from attack_hooks import check_hooks

import fedmia.attacks
from fedmia.attacks.base import ActiveAttack, AttackTurn, Known
from fedmia.attacks.stacking import Stacking
from fedmia.seeding import rng
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.testing import check_attack
from fedmia.testing.attack_case import AttackCase
from fedmia.testing.material import AUGMENT
from fedmia.threat import ClientView, ServerView

# They share nearly all of their code with one that is always asked.
SIBLINGS = ("ascent-algorithm1", "ascent-climb", "baseline-a", "baseline-b", "baseline-d",
            "encodermi-s", "encodermi-v", "fe-mi", "lira-rounds", "partcrop-v2", "rmia-rounds",
            "semi-rounds", "stacking", "stacking-white", "supervised-mi")  # fmt: skip
CLIMBS = ("ascent-climb", "ascent-static")  # on the released model
every_attack = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in SIBLINGS)) for n in registry.names("attack")],
)
Cases = Callable[[str], AttackCase]


@pytest.fixture(scope="module")
def case_of() -> Cases:
    """`case_of(name)`: its usual scores are computed once."""
    return functools.cache(lambda name: AttackCase(registry.load("attack", name)))


def test_exports__name_every_built_in_for_type_checkers() -> None:
    tree = ast.parse(Path(fedmia.attacks.__file__ or "").read_text(encoding="utf-8"))
    typed = {
        (node.module, alias.name, alias.asname)
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    classes = [registry.load("attack", name) for name in registry.names("attack")]
    missing = {(c.__module__, c.__name__, c.__name__) for c in classes} - typed
    assert not missing, f"fedmia/attacks/__init__.py does not import {missing}"
    assert {name for _, name, _ in typed} == set(fedmia.attacks.__all__)


@every_attack
def test_attack__keeps_its_promises(name: str, case_of: Cases) -> None:
    check_attack(registry.load("attack", name))
    check_hooks(case_of(name))


@every_attack
def test_score__tells_images_apart(name: str, case_of: Cases) -> None:
    assert len(np.unique(case_of(name).usual().scores)) > 10


@every_attack
def test_learns__is_said_by_none_to_whom_known_images_do_not_matter(
    name: str, case_of: Cases
) -> None:
    """The other half of `learns_says_whether_known_images_matter`."""
    case = case_of(name)
    if case.new().learns and name not in CLIMBS:  # they may choose the same both ways
        assert not np.array_equal(case.run(known=case.swapped).scores, case.usual().scores)


@every_attack
def test_non_members_alone__suffice_but_for_those_who_learn_from_members(
    name: str, case_of: Cases
) -> None:
    case = case_of(name)
    known = case.known.without_members()
    if case.new().learns_from_members:
        case.refused(
            lambda: case.run(known=known), InputError, " takes non-members for members or guesses"
        )
    else:
        scores = case.run(known=known).scores
        assert np.isfinite(scores).all() and len(np.unique(scores)) > 10
        # An attack that learns is then fitted on these alone, and says nothing else of the images.
        assert case.new().learns or np.array_equal(scores, case.usual().scores) or has_pool(name)


def has_pool(name: str) -> bool:
    """Whether it measures spreads over all known images, whatever their side."""
    return name in ("bavaria", "lira", "lira-rounds")


@every_attack
def test_budget__suffices_exactly_where_rows_are_shared_and_they_pass_once(
    name: str, case_of: Cases
) -> None:
    case = case_of(name)
    usual = case.usual()
    attack, view, scores, queries, passed = case.run(
        signals=usual.view._signals, budget=usual.queries
    )
    assert queries == usual.queries and view.remaining == 0 and (scores == usual.scores).all()
    if isinstance(attack, Stacking):  # two of each of its attacks, and of some the bank
        assert passed % len(case.held) == 0
    elif not isinstance(attack, ActiveAttack) and name not in CLIMBS:  # those share no row
        bank = len(case.held) if hasattr(attack, "negatives") else 0
        if isinstance(view, ServerView):
            bank = 0  # it keys the negatives of an update only for rows that it lacks
        elif isinstance(view, ClientView):
            bank *= len(view.received)
        assert passed == (1 + attack.learns) * bank  # fit and score, and not one image more


@every_attack
def test_disarmed__is_the_same_attack_without_its_active_step(name: str, case_of: Cases) -> None:
    case = case_of(name)
    attack = case.new()
    if not isinstance(attack, ActiveAttack):
        return
    control = attack.disarmed()
    assert type(control) is type(attack)
    moco, images = case.method, case.images
    received = moco.shared_state()
    trained = {n: t + 0.01 for n, t in received.items()}
    known = Known(images[:4], images[4:9])
    for kind in (attack, control):
        of = 1, 2, 0.5, {}, AUGMENT, rng(0, "craft")
        turn = AttackTurn(copy.deepcopy(moco), received, trained, images, None, known, *of)
        sent = kind.craft(turn)
        same = [all(torch.equal(sent[n], t) for n, t in s.items()) for s in (received, trained)]
        assert any(same) is (kind is control)  # the model as received, or the honest update
    assert control.round_size == attack.round_size and control.together == attack.together
    assert attack.control != attack.over and attack.uploads


READ_WAYS = [n for n in registry.names("attack") if registry.load("attack", n).readings]


def test_readings__are_of_the_ascents() -> None:
    assert READ_WAYS == ["ascent", "ascent-algorithm1", "ascent-static"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in SIBLINGS)) for n in READ_WAYS],
)
def test_other_readings__differ_in_the_reading_alone(name: str, case_of: Cases) -> None:
    """Each reads what the one asked for has noted, by a shared fit, and scores by itself."""
    case = case_of(name)
    attack, view = case.new(), case.view()
    attack.fit(view, case.known, rng(0, "fit"))
    assert attack.reading in {*attack.readings, "line23"}
    others = attack.other_readings()
    assert [attack.reading, *others] == sorted(
        {attack.reading, *attack.readings}, key=[attack.reading, *attack.readings].index
    )
    scores = {attack.reading: attack.score(view, case.images)}
    for reading, other in others.items():
        assert type(other) is type(attack) and other.reading == reading
        assert {n: v for n, v in vars(other).items() if n != "reading"} == {
            n: v for n, v in vars(attack).items() if n != "reading"
        }
        scores[reading] = other.score(view, case.images)
        assert scores[reading].shape == (len(case.images),) and np.isfinite(scores[reading]).all()
    assert attack.reading == next(iter(scores))  # and is left as it was
    distinct = {tuple(np.argsort(one)) for one in scores.values()}
    assert len(distinct) == len(scores)
