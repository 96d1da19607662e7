"""Encoders in which only the rise of the loss tells, or only its level, at one climb of those
tried: the attacks find that climb on known images, and the members by it. Losses are closed
forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from fedmia.attacks import _rehearsal, ascent_static
from fedmia.attacks.ascent import Ascent, AscentAlgorithm1
from fedmia.attacks.ascent_static import AscentStatic
from fedmia.attacks.base import AttackTurn, Known
from fedmia.nets.base import Backbone
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.base import Encoder, SSLMethod, State
from fedmia.ssl.train import Train
from fedmia.threat import ClientView, Trajectory, WhiteBox
from tests.attacks.planted import PLAIN

WEIGHT = "backbone.weight"
SIDE = 16  # images of a side


class Planted(Backbone):
    """One weight w, which climbs at a slope of 1 whatever the images, and as output their losses.

    An image's first pixel says whether it is a member, its second is b, the loss at w = 0. A member
    and a non-member of each b: so nothing tells but at `rise`, where the loss is b + 1 of members
    and b + 2 of others, and at `level`, where it is 300 of members and 301 of others.
    """

    layers = ("layer1",)
    width = 1

    def __init__(self, rise: float, level: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.at = {"rise": rise, "level": level}

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        other, b = 1 - x[:, 0, 0, 0].round(), (255 * x[:, 0, 0, 1]).round()
        w = float(self.weight.detach())
        loss = b if w == 0 else b + 50 + (b * 7) % 16
        if abs(w - self.at["rise"]) < 1e-3 * abs(w):
            loss = b + 1 + other
        if abs(w - self.at["level"]) < 1e-3 * abs(w):
            loss = 300 + other
        return {"layer1": (loss + self.weight - w)[:, None, None, None]}


class Losses(SSLMethod):
    """Whose loss of an image is what the encoder makes of its views, and which has no bank."""

    def __init__(self, rise: float, level: float) -> None:
        super().__init__()
        backbone = Planted(rise, level)
        self.encoder = Encoder(backbone, nn.Identity(), (0.0,) * 3, (1.0,) * 3)

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        return self.probe_losses(view1, view2)

    def output_losses(self, z1: Tensor, z2: Tensor) -> Tensor:
        return (z1 + z2).mean(dim=1) / 2

    def after_step(self) -> None:
        return None

    def fill_bank(self, pixels: Tensor) -> None:
        return None

    def local_state(self) -> State:
        return {}

    def load_local(self, state: State) -> None:
        return None


def pictures(first: int) -> tuple[Tensor, Tensor]:
    """As many members as others, with the same losses at w = 0."""
    images = torch.zeros(2, SIDE, 3, 4, 4, dtype=torch.uint8)
    images[0, :, 0, 0, 0] = 255
    images[:, :, 0, 0, 1] = torch.arange(first, first + SIDE)
    return images[0], images[1]


KNOWN, TARGETS = Known(*pictures(100)), torch.cat(pictures(20))
TRUTH = np.repeat([1, 0], SIDE)


@dataclass(frozen=True)
class Server:
    """What becomes of a weight in a round, in numbers: honest clients send `pull` times what they
    received, plus `drift`; the attacker has `share` in the mean, and `turns` such rounds."""

    share: float = 1.0
    turns: int = 1
    pull: float = 1.0
    drift: float = 0.0
    alone: bool = False

    def honest(self, weights: State) -> State:
        return {n: self.pull * t + self.drift for n, t in weights.items()}

    def ended(self, climbed: float) -> float:
        """The weight after the round: honest clients of a batch alone received no climb; of all
        images together they received what all rounds let through."""
        part = min(1.0, self.share * self.turns) * climbed
        received, own = (0.0, climbed) if self.alone else (part, part)
        return (1 - self.share) * (self.pull * received + self.drift) + self.share * own

    def turn(self, method: SSLMethod, images: Tensor = TARGETS, **more: Any) -> AttackTurn:
        received = {WEIGHT: torch.zeros(())}
        at = self.turns, self.share, {}, PLAIN, rng(0, "craft")
        return AttackTurn(
            method, received, received, images, None, KNOWN, 0, *at, alone=self.alone,
            rehearse=self.honest, **more,
        )  # fmt: skip


SERVERS = (
    Server(),
    Server(share=0.25, turns=2, pull=0.8, drift=0.004),
    Server(share=0.5, turns=6, pull=0.4),
    Server(share=0.25, turns=6, alone=True, drift=0.004),
    Server(share=0.5, alone=True, pull=0.8),
)
servers = pytest.mark.parametrize("server", SERVERS)
readings = pytest.mark.parametrize("reading", ["rise", "level"])


def attack_of(server: Server, **options: Any) -> Ascent:
    kind = AscentAlgorithm1 if server.alone else Ascent
    return kind(
        **{"loss": "training", "batch": 64, "pairs": 1, "steps": "auto", "lr": "auto", **options}
    )


def tried(attack: Ascent, server: Server, method: SSLMethod) -> list[tuple[float, int, float]]:
    turn = server.turn(method)
    return list(_rehearsal.tried(attack, turn, attack.lots(turn, np.arange(len(TARGETS)))))


def apart(grid: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The first steps and rate of a grid that reach each weight, but the first weight."""
    firsts: list[tuple[int, float]] = []
    for steps, lr in grid:
        if all(abs(steps * lr - a * b) > 0.01 * a * b for a, b in firsts):
            firsts.append((steps, lr))
    return firsts[1:]


def planted(server: Server) -> tuple[dict[str, tuple[int, float]], SSLMethod]:
    """By reading the climb at which it tells, neither as short as the first that is tried; and a
    method in which it is so."""
    attack = attack_of(server)
    grid = [(steps, lr) for _, steps, lr in tried(attack, server, Losses(-1.0, -1.0))]
    *_, rise, level = apart(grid)
    (a, b), (c, d) = rise, level
    return {"rise": rise, "level": level}, Losses(server.ended(a * b), server.ended(c * d))


@servers
@readings
def test_tried__tells_by_what_the_attack_will_read_after_the_round(
    server: Server, reading: str
) -> None:
    """One climb tells all members, and others, but of equal length, next to nothing."""
    right, method = planted(server)
    attack = attack_of(server, reading=reading)
    steps, lr = right[reading]
    for auc, *climb in tried(attack, server, method):
        right_length = climb[0] * climb[1] == pytest.approx(steps * lr, rel=1e-3)
        assert auc == (1.0 if right_length else pytest.approx(0.5, abs=1 / SIDE))


@pytest.mark.slow
@servers
@readings
def test_auto__climbs_as_far_as_its_reading_needs(server: Server, reading: str) -> None:
    """It uploads that climb; the candidates are then told by this reading, by the other hardly, and
    by neither without the climb."""
    right, method = planted(server)
    attack = attack_of(server, reading=reading)
    turn = server.turn(method)
    sent = attack.craft(turn)
    steps, lr = right[reading]
    assert turn.notes["choice"] == {"steps": steps, "lr": lr}
    assert float(sent[WEIGHT]) == pytest.approx(steps * lr, rel=1e-5)
    after = {WEIGHT: torch.tensor(server.ended(float(sent[WEIGHT])))}
    assert auc_of(attack, method, sent, after) == 1.0
    (other,) = (r for r in ("rise", "level") if r != reading)
    assert auc_of(attack.other_readings()[other], method, sent, after) < 0.6
    idle = attack.disarmed().craft(server.turn(method))
    assert float(idle[WEIGHT]) == 0.0
    for one in (attack, *attack.other_readings().values()):
        assert auc_of(one, method, idle, idle) == 0.5


def auc_of(attack: Any, method: SSLMethod, sent: State, after: State) -> float:
    """Of the candidates in a round that began at w = 0."""
    view = ClientView(method, PLAIN, seed=0, device=torch.device("cpu"), held=TARGETS)
    states = {WEIGHT: torch.zeros(())}, sent, after
    before, upload, end = (attack.read(view.of_weights(s), TARGETS)[None] for s in states)
    return float(roc_auc_score(TRUTH, attack.judge(Trajectory([1], before, upload, end))))


def test_line23__is_rehearsed_with_the_upload() -> None:
    """What the upload had over what the round ended with: members' losses are told apart where the
    upload stands at `rise`, and the round ends at a weight of which nothing is known."""
    server = Server(share=0.5, alone=True)
    attack = attack_of(server, reading="line23")
    grid = [(steps, lr) for _, steps, lr in tried(attack, server, Losses(-1.0, -1.0))]
    steps, lr = apart(grid)[-1]
    got = tried(attack, server, Losses(-1.0, steps * lr))
    assert max(got)[1:] == (steps, lr) and max(got)[0] > 0.5 > min(got)[0] - 0.01


def test_best__is_the_highest_and_of_equals_the_first() -> None:
    tried: list[tuple[float, int, float | None]] = [
        (0.4, 1, 0.01), (0.9, 3, 0.05), (0.6, 3, 0.1), (0.9, 5, 0.05), (0.1, 9, None),
    ]  # fmt: skip
    assert _rehearsal.best(iter(tried)) == {"steps": 3, "lr": 0.05}
    assert _rehearsal.best(iter(tried[-1:])) == {"steps": 9, "lr": None}


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"steps": 3}, lambda steps, lr: steps == 3),
        ({"steps": "matched"}, lambda steps, lr: steps == 7),
        ({"lr": 0.02}, lambda steps, lr: lr == 0.02),
        ({"lr": "matched"}, lambda steps, lr: lr is None),
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_tried__only_what_is_left_to_it(
    options: dict[str, Any], want: Callable[[int, float | None], bool], alone: bool
) -> None:
    server = Server(alone=alone)
    attack, method = attack_of(server, **options), Losses(-1.0, -1.0)
    turn = server.turn(method, train=Train(local_epochs=7))
    got = list(_rehearsal.tried(attack, turn, attack.lots(turn, np.arange(len(TARGETS)))))
    assert got and all(want(steps, lr) for _, steps, lr in got)


@pytest.mark.parametrize("alone", [False, True])
def test_auto__chooses_once_for_all_rounds(alone: bool) -> None:
    """Of fewer known images than a side needs it says so."""
    server, rehearsed = Server(alone=alone), list[int]()

    def rehearse(weights: State) -> State:
        rehearsed.append(1)
        return server.honest(weights)

    right, method = planted(server)
    attack = attack_of(server, reading="rise")
    turn = dataclasses.replace(server.turn(method), rehearse=rehearse)
    steps, lr = right["rise"]
    rehearsals = list[int]()
    for _ in range(2):
        assert float(attack.craft(turn)[WEIGHT]) == pytest.approx(steps * lr)
        assert turn.notes["choice"] == {"steps": steps, "lr": lr}
        rehearsals.append(len(rehearsed))
    assert rehearsals[0] == rehearsals[1] > 0
    fresh = server.turn(method)
    object.__setattr__(fresh, "known", Known(KNOWN.members, KNOWN.nonmembers[:0]))
    with pytest.raises(InputError, match="chooses steps and lr on known images, got none"):
        attack.craft(fresh)


# -- static


def static(
    reading: str, rise: float, level: float, steps: int = 1
) -> tuple[AscentStatic, WhiteBox]:
    """Fitted on the known images."""
    view = WhiteBox(Losses(rise, level), PLAIN, seed=0, device=torch.device("cpu"))
    attack = AscentStatic(reading=reading, negatives="queue", pairs=1, steps=steps)
    attack.fit(view, KNOWN, rng(0, "fit"))
    return attack, view


@pytest.mark.parametrize("steps", [1, 3])
@readings
def test_static__climbs_as_far_as_its_reading_needs(reading: str, steps: int) -> None:
    *_, rise, level = ascent_static.RATES
    attack, view = static(reading, steps * rise, steps * level, steps)
    assert attack.choices == {"lr": {"rise": rise, "level": level}[reading]}
    auc = partial(roc_auc_score, TRUTH)
    assert auc(attack.score(view, TARGETS)) == 1.0
    (other,) = attack.other_readings().values()
    assert auc(other.score(view, TARGETS)) < 0.6
    assert auc(attack.score_without(view, TARGETS)[:, 0]) == 0.5
