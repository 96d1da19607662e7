"""Which processor a run computes on."""

from __future__ import annotations

import re
import socket

import torch

from fedmia.runtime.cores import count_cores
from fedmia.settings.errors import InputError, opt

DEVICES = "auto, cpu, cuda or cuda:N"


def check_device(device: str, path: str = "machine.device") -> None:
    """Refuse what is none of DEVICES.

    Args:
        device: as the user gave it.
        path: of the option.

    Raises:
        InputError: naming them.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", device):
        raise InputError(f"{opt(path)}: '{device}', must be {DEVICES}")


def resolve_device(device: str) -> str:
    """`auto` is the GPU where torch finds one, else the CPU; any other name is itself."""
    return _exact(("cuda" if count_gpus() else "cpu") if device == "auto" else device)


def _exact(device: str) -> str:
    """The device, on which float32 is float32 from now on: torch lets a GPU round what it convolves
    to TF32's 10 bits, and outputs then differ from a CPU's by 1e-4 in place of 1e-7."""
    if device != "cpu":
        torch.backends.cudnn.allow_tf32 = False
    return device


def client_device(device: str, gpus: float) -> str:
    """The device of a client on Ray, asked in the client's own process.

    Ray lets the process see the client's GPUs alone, numbered from 0 whichever they are. So the
    client trains on the first that it sees, also where the user's name for it is `cuda:3`.

    Args:
        device: as the user gave it.
        gpus: share of a GPU that Ray gave the client, 0 for none.

    Returns:
        `cuda`, or `cpu` without a share.

    Raises:
        InputError: torch finds no GPU in this process.
    """
    if gpus == 0 or device == "cpu":
        return "cpu"
    if count_gpus() == 0:
        share = opt("machine.gpus_per_client", f"{gpus:g}")
        where = f"{opt('machine.device', device)}, {share}"
        raise InputError(f"{where}: torch finds no CUDA GPU on {socket.gethostname()}")
    return _exact("cuda")


def bfloat16_note(device: str, precision: str) -> str | None:
    """A note where the processor has no instructions for bfloat16.

    Args:
        device: as the user gave it.
        precision: of the forward passes, `float32` or `bfloat16`.

    Returns:
        One sentence, or None.
    """
    instructions = torch.backends.cpu.get_cpu_capability()
    if precision != "bfloat16" or resolve_device(device) != "cpu":
        return None
    if instructions not in ("DEFAULT", "AVX2"):
        return None
    return (
        f"bfloat16: this processor has no instructions for it (torch uses {instructions}); "
        "float32 is many times as fast here"
    )


def oversubscription_note(path: str, threads: int) -> str | None:
    """A note where more threads are asked for than the process has cores.

    Args:
        path: of the option.
        threads: of it.

    Returns:
        One sentence, or None.
    """
    if threads <= (cores := count_cores()):
        return None
    return f"{opt(path, threads)}: there are {cores} cores here, and more threads only wait"


def gpus_if_missing(device: str) -> int | None:
    """How many GPUs torch finds, where `device` (`cuda`, `cuda:N`) is none of them; else None."""
    if not device.startswith("cuda"):
        return None
    count = count_gpus()
    return None if int(device.partition(":")[2] or 0) < count else count


def count_gpus() -> int:
    """How many GPUs torch finds."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
