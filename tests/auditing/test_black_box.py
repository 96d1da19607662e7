"""Encoders of which an attacker has the outputs alone: what is asked of them, their controls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.auditing.brought import tiny
from tests.auditing.conftest import MEMBERS, NONMEMBERS, Audit

ASKED: list[int] = []
LOOK = 16  # images of a side that a first look takes
NO_CONTROL = (
    "The only control is the pixels, without a model: no attack was tried where nothing can leak."
)


class Service(nn.Module):
    """Answers with numbers, as a service on the net does; it has no weights."""

    def forward(self, x: Tensor) -> Tensor:
        ASKED.append(len(x))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            return torch.from_numpy(tiny().eval()(x).numpy())


class Constant(nn.Module):
    """One output for every image; zeros, as of dead units, or ones."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.linear, self.value = nn.Linear(3, 4), value

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.mean(dim=(2, 3))) * 0 + self.value


class Pair(nn.Module):
    """Two vectors without names."""

    def __init__(self) -> None:
        super().__init__()
        self.tiny = tiny()

    def forward(self, x: Tensor) -> Any:
        return self.tiny(x)[:, :3], self.tiny(x)


def ones() -> nn.Module:
    return Constant(1.0)


HERE = f"--encoder {__name__}:"


def test_service__has_no_twin_no_white_box_attack_and_no_query_for_them(audit: Audit) -> None:
    ASKED.clear()
    done = audit(f"{HERE}Service --attacks similarity,grad-norm --known 6")
    report = done.report
    assert done.code == 0 and done.names() == ["similarity"]
    assert report["split"]["access"] == "black_box" and report["encoder"]["loaded"] == 0
    assert report["controls"]["untrained"] == []
    assert report["pixels"] and report["utility_untrained"]["knn"] is None
    assert "needs white_box access" in done.not_run["grad-norm"]
    notes = " ".join(report["notes"])
    assert "no untrained control: it has no weights to permute; what remains" in notes
    assert report["means"].endswith(NO_CONTROL)
    assert "permuted" not in notes
    # Each image and its three views, twice a look at both sides, and blank pixels: no second
    # model, no queue of negatives.
    assert sum(ASKED) <= (MEMBERS + NONMEMBERS) * (1 + 3) + 2 * 2 * LOOK + 20
    assert report["verdict_code"] != "control-failed"


def test_access__any_encoder_may_be_a_black_box(audit: Audit) -> None:
    both = "--attacks similarity,grad-norm --known 6"
    white, black = audit(both), audit(f"{both} --access black_box")
    assert white.names() == ["similarity", "grad-norm"] and black.names() == ["similarity"]
    assert black.report["attacks"][0]["auc"] == white.report["attacks"][0]["auc"]
    assert [row["name"] for row in black.report["controls"]["untrained"]] == ["similarity"]
    assert "access" not in white.report["config"]
    refused = audit(f"{HERE}Service --access white_box")
    assert refused.code == 2 and "(--access) to" in refused.err and "black_box" in refused.err


@pytest.mark.parametrize("factory", ["Constant", "ones"])
def test_constant__is_collapsed_and_never_quiet(factory: str, audit: Audit) -> None:
    done = audit(f"{HERE}{factory} --known 6")
    assert done.report["health"]["collapsed"] and done.report["verdict_code"] == "collapsed"


def test_outputs__of_two_vectors_one_must_be_named(audit: Audit) -> None:
    pair = audit(f"{HERE}Pair --known 6")
    assert pair.code == 2 and "(--embedding) NAME" in pair.err
    named = audit(f"{HERE}Pair --known 6 --embedding 1")
    assert named.code == 0 and named.report["encoder"]["outputs"][-1]["shape"] == [5]
