"""What a run says before its first round, and how far a round is while it lasts."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.config.experiment import Experiment
from fedmia.federation.outlook import describe_start
from fedmia.federation.run import prepare
from fedmia.options.errors import format_error
from fedmia.report.figures import draw
from fedmia.runtime.progress import Display
from fedmia.simulate import main

TINY = (
    "--clients 3 --rounds 2 --train.local_epochs 1 --train.batch_size 4 --model.width 4 "
    "--split.members 30 --split.nonmembers 60 --split.known 8 --split.test 20 --device cpu "
    "--attacks none --partition iid "
)


def said(flags: str) -> list[str]:
    settings: Experiment = parse(SIMULATE, shlex.split(flags)).settings
    return [format_error(line, settings.spelling) for line in describe_start(prepare(settings))]


def test_start__images_clients_cuts_and_rounds() -> None:
    flags = TINY.replace("--rounds 2", "--rounds 4").replace("--attacks none", "--attacks ascent")
    flags += "--attacker active --attack-rounds 1"
    assert said(flags) == [
        "155 of 1,797 images of digits used: 30 members, 60 nonmembers, 20 test, 15 attackers, "
        "30 placebo",
        "2 clients train on 15 (least), 15 (median), 15 (most) images each",
        "2 of 2 clients: queue cut from 4096 to 7, half of 15 images, or images would meet "
        "earlier keys of their own as negatives",
        "rounds: 4 main + 1 zero + 4 placebo",
    ]


def test_start__clients_with_too_few_images_are_loud() -> None:
    lines = said(TINY.replace("--train.batch_size 4", "--train.batch_size 11") + "--ssl byol")
    assert lines[1:] == [
        "3 clients train on 10 (least), 10 (median), 10 (most) images each",
        "WARNING: 3 of 3 clients have fewer images than a batch of 11 and hardly learn: more "
        "--split.members, fewer --clients or a smaller --train.batch_size help",
        "rounds: 2 main",
    ]


def test_start__images_of_the_user_all_have_a_role_or_the_limit_is_said(tmp_path: Path) -> None:
    for count in (400, 8400):
        pixels = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 2, 2)
        np.savez(tmp_path / f"{count}.npz", x=np.tile(pixels, (1, 4, 4)))
    flags = "--clients 4 --attacks none --device cpu --partition iid --dataset npz:" + str(tmp_path)
    first = "400 of 400 images of 400 used: 250 members, 100 nonmembers, 50 test"
    assert said(f"{flags}/400.npz")[:2] == [
        first, "4 clients train on 62 (least), 62.5 (median), 63 (most) images each"
    ]  # fmt: skip
    assert said(f"{flags}/8400.npz")[0] == (
        "8,000 of 8,400 images of 8400 used: 5,000 members, 2,000 nonmembers, 1,000 test; by "
        "default at most 5,000 members, of which 2,000 are scored: --split.members and "
        "--split.scored take more"
    )


@pytest.mark.parametrize(
    "backend", ["inline", pytest.param("ray", marks=pytest.mark.slow(seconds=12))]
)
def test_round__shows_its_clients_as_they_finish(
    backend: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Progress grows with the images of each client, and is whole where the round ends."""
    if backend == "ray":
        request.getfixturevalue("one_ray")
    states, plain = list[tuple[str, float]](), Display.reply

    def reply(self: Display, share: float, clients: int) -> None:
        plain(self, share, clients)
        states.append((self.state().partition(",")[0], self._bar.tasks[0].completed))
        assert f"client {len(states) % 3 or 3}/3" in self.state()

    monkeypatch.setattr(Display, "reply", reply)
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})
    assert main([*shlex.split(TINY), "--quiet", "--backend", backend]) == 0
    assert [text for text, _ in states] == ["rounds 0/2"] * 3 + ["main rounds 1/2"] * 3
    assert [done for _, done in states] == pytest.approx([1 / 3, 2 / 3, 0.99, 4 / 3, 5 / 3, 1.99])
