"""What a session of Python has changed in torch and numpy changes no number of a call."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from torch import nn

import fedmia
from fedmia.attacks.lpla import LpLA
from fedmia.report.figures.canvas import drawn
from fedmia.runtime.numerics import EXACT, default_numerics
from fedmia.testing import check_attack

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


def facts() -> list[Any]:
    """All that `default_numerics` sets, and what it leaves as it is."""
    return [
        torch.get_default_dtype(), torch.get_default_device().type, torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"), torch.backends.mkldnn.matmul.fp32_precision in EXACT,
        torch.backends.mkldnn.enabled, np.geterr(), torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate(),
    ]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_state__is_a_new_process_inside_and_the_sessions_afterwards(change: str) -> None:
    usual = facts()[:9]
    with CHANGES[change]():
        before = facts()
        assert change == "threads" or before[:9] != usual
        with pytest.raises(KeyboardInterrupt), default_numerics():
            assert facts()[:9] == usual
            torch.rand(1)
            random.random()
            torch.set_num_threads(2)
            raise KeyboardInterrupt
        assert facts() == before
    assert facts()[:9] == usual


def test_state__of_torchs_newer_precision_is_asked_for_in_the_newer_way() -> None:
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        with default_numerics():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "bf16"
    finally:
        matmul.fp32_precision = before


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


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
@pytest.mark.parametrize("change", CHANGES)
def test_simulation__has_the_numbers_of_a_new_process(change: str) -> None:
    def aucs() -> list[float]:
        return list(fedmia.run_simulation("smoke", quiet=True, backend="inline").attacks["auc"])

    usual = aucs()
    with CHANGES[change]():
        assert aucs() == usual


def test_figures__are_drawn_alike_whatever_the_session_sets() -> None:
    @drawn
    def draw() -> Any:
        figure = matplotlib.figure.Figure((2, 2))
        figure.subplots().plot([1, 2])
        return figure

    usual = draw()
    with matplotlib.rc_context({"font.family": "monospace", "axes.facecolor": "red"}):
        assert draw() == usual
        assert matplotlib.rcParams["axes.facecolor"] == "red"
