"""The state of torch and numpy that numbers depend on, and that a session may have changed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
import torch

BACKENDS: Sequence[tuple[Any, str, bool]] = (
    (torch.backends.mkldnn, "enabled", True),
    (torch.backends.cudnn, "enabled", True),
    (torch.backends.cudnn, "benchmark", False),
    (torch.backends.cudnn, "deterministic", False),
)
EXACT = "none", "ieee"  # precisions of float32 that round nothing


@contextmanager
def default_numerics() -> Iterator[None]:
    """Types, devices, gradients, precision and errors as in a new process; afterwards they are as
    they were before, and so are threads and random generators.

    Yields:
        Nothing.
    """
    dtype, strict = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with ExitStack() as state:
        state.callback(torch.set_default_dtype, dtype)
        torch.set_default_dtype(torch.float32)
        state.callback(torch.use_deterministic_algorithms, strict, warn_only=warn_only)
        torch.use_deterministic_algorithms(False)
        state.callback(torch.set_num_threads, torch.get_num_threads())
        state.callback(random.setstate, random.getstate())
        state.enter_context(torch.random.fork_rng(devices=[]))
        for backend, name, usual in BACKENDS:
            state.callback(setattr, backend, name, getattr(backend, name))
            setattr(backend, name, usual)
        _multiply_exactly(state)
        state.enter_context(torch.inference_mode(False))
        state.enter_context(torch.enable_grad())
        state.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                state.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            state.enter_context(torch.device("cpu"))
        yield


def _multiply_exactly(state: ExitStack) -> None:
    """Products of float32 that round nothing. torch refuses to be asked in its older way where it
    was told in its newer, which its versions before 2.9 lack."""
    with suppress(RuntimeError):
        # What runs on a GPU clears it.
        state.callback(setattr, torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)
    if not hasattr(torch.backends, "fp32_precision"):
        state.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest")
        return
    backends: Sequence[Any] = torch.backends.cuda, torch.backends.mkldnn
    for matmul in (backend.matmul for backend in backends):
        if {before := matmul.fp32_precision, torch.backends.fp32_precision} - {*EXACT}:
            state.callback(setattr, matmul, "fp32_precision", before)
            matmul.fp32_precision = "ieee"
