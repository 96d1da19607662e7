"""What a session of Python has changed in torch and numpy changes no number of a call."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import matplotlib
import numpy as np
import pytest
import torch
from torch import nn

import fedmia
from fedmia.attacks.base import Attack
from fedmia.attacks.lpla import LpLA
from fedmia.report.build import build_report
from fedmia.report.figures.draw import draw_all
from fedmia.testing import check_attack
from fedmia.threat import Threat
from tests.report.conftest import alone, make_run

CHANGES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "float64": lambda: changed(torch.set_default_dtype, torch.float64, torch.float32),
    "bfloat16": lambda: changed(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "meta": lambda: changed(torch.set_default_device, "meta", None),
    "in meta": lambda: torch.device("meta"),
    "no grad": lambda: changed(torch.set_grad_enabled, False, True),
    "inference": torch.inference_mode,
    "deterministic": lambda: changed(torch.use_deterministic_algorithms, True, False),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "bf16 products": lambda: changed(torch.set_float32_matmul_precision, "medium", "highest"),
    "no oneDNN": lambda: changed(one_dnn, False, True),
    "numpy raises": lambda: np.errstate(all="raise"),
    "threads": lambda: changed(torch.set_num_threads, 3, torch.get_num_threads()),
}


@contextmanager
def changed(set_to: Callable[[Any], object], new: Any, usual: Any) -> Iterator[None]:
    set_to(new)
    try:
        yield
    finally:
        set_to(usual)


def one_dnn(enabled: bool) -> None:
    torch.backends.mkldnn.enabled = enabled


def ours() -> list[Any]:
    """All that a call sets for itself."""
    return [
        torch.get_default_dtype(), torch.get_default_device().type, torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"), matmul.fp32_precision in ("ieee", "none"),
        torch.backends.mkldnn.enabled, np.geterr(),
    ]  # fmt: skip


def facts() -> list[Any]:
    """And what it leaves as it is."""
    return [
        *ours(), torch.get_num_threads(), torch.get_float32_matmul_precision(),
        torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate(),
    ]  # fmt: skip


matmul: Any = torch.backends.mkldnn.matmul


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


SEEN = list[list[Any]]()


@dataclass
class Looks(Attack):
    """Notes what it finds, changes what it can, and is interrupted."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("features",)

    def score(self, view: Any, images: torch.Tensor) -> Any:
        SEEN.append(ours())
        torch.rand(1)
        random.random()
        torch.set_num_threads(2)
        raise KeyboardInterrupt


TINY = Tiny()


def interrupted() -> None:
    """An audit in which `Looks` looks."""
    sides = np.random.default_rng(0).integers(0, 256, (2, 20, 3, 8, 8), dtype=np.uint8)
    SEEN.clear()
    with pytest.raises(KeyboardInterrupt):
        fedmia.audit_encoder(
            TINY, *sides, attacks=[f"{__name__}:Looks"], known=4, quiet=True, threads=1
        )


@pytest.mark.parametrize("change", CHANGES)
def test_state__is_a_new_process_inside_and_the_sessions_afterwards(change: str) -> None:
    usual = ours()
    with CHANGES[change]():
        before = facts()
        assert change == "threads" or ours() != usual
        interrupted()
        assert [usual] == SEEN and facts() == before
    assert ours() == usual


def test_state__of_torchs_newer_precision_is_asked_for_in_the_newer_way() -> None:
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        interrupted()
        assert SEEN[0][6] and matmul.fp32_precision == "bf16"
    finally:
        matmul.fp32_precision = before


@pytest.fixture(scope="module")
def audit() -> Callable[[], Any]:
    sides = np.random.default_rng(0).integers(0, 256, (2, 20, 3, 8, 8), dtype=np.uint8)
    names, tiny = ["similarity", "grad-norm"], Tiny()

    def scores() -> Any:
        run = fedmia.audit_encoder(tiny, *sides, attacks=names, known=4, quiet=True, threads=1)
        return run.scores[names].to_numpy().tolist()

    return scores


@pytest.fixture(scope="module")
def usual(audit: Callable[[], Any]) -> Any:
    return audit()


@pytest.mark.parametrize("change", ["float64", "meta"])
def test_audit__has_the_numbers_of_a_new_process(
    change: str, usual: Any, audit: Callable[[], Any]
) -> None:
    with CHANGES[change]():
        assert audit() == usual


def test_check_attack__passes_wherever_it_is_called() -> None:
    with CHANGES["bfloat16"](), CHANGES["meta"]():
        check_attack(LpLA)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["float64", "in meta"])
def test_simulation__has_the_numbers_of_a_new_process(change: str) -> None:
    def aucs() -> list[float]:
        return list(fedmia.run_simulation("smoke", quiet=True, backend="inline").attacks["auc"])

    usual = aucs()
    with CHANGES[change]():
        assert aucs() == usual


def test_figures__are_drawn_alike_whatever_the_session_sets() -> None:
    whole = make_run()
    run = alone(whole, whole.attacks[0], clients=(), rounds=(), curves=None, pixels=None)
    report = build_report(run)

    def draw() -> Any:
        return draw_all(run, report)

    usual = draw()
    assert usual
    with matplotlib.rc_context({"font.family": "monospace", "axes.facecolor": "red"}):
        assert draw() == usual
        assert matplotlib.rcParams["axes.facecolor"] == "red"
