"""The state of torch and numpy that numbers depend on, and that a session may have changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch


@contextmanager
def default_numerics() -> Iterator[None]:
    """Types, devices, gradients, precision and errors as in a new process; afterwards they are as
    they were before, and so are threads and random generators.

    Yields:
        Nothing.
    """
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    deterministic = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    with ExitStack() as state:
        state.callback(torch.set_default_dtype, dtype)
        state.callback(torch.set_num_threads, threads)
        state.callback(random.setstate, random.getstate())
        state.enter_context(torch.random.fork_rng(devices=[]))
        state.callback(torch.set_float32_matmul_precision, precision)
        state.callback(
            torch.use_deterministic_algorithms, deterministic[0], warn_only=deterministic[1]
        )
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        torch.use_deterministic_algorithms(False)
        state.enter_context(torch.inference_mode(False))
        state.enter_context(torch.enable_grad())
        state.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                state.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            state.enter_context(torch.device("cpu"))
        yield
