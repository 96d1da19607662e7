"""The tensors of a training that stay with its client: where the next round goes on from.

Both executors use it: of one client, and of many whose tensors are stacked.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from clients.client_setup import ClientSetup
from fedmia.ssl.base import State, on_device, under
from fedmia.ssl.optimizers import optimizer_state, restore
from fedmia.ssl.train import Job


def begin_training(job: Job, tensors: Mapping[str, Tensor]) -> None:
    """Go on where the last round ended.

    Args:
        job: its method has the weights of the round, and changes in place.
        tensors: what `end_training` gave then, on any device; empty in a first round. They stay
            as they are.
    """
    method, tensors = job.method, on_device(tensors, job.device)
    if not tensors:
        method.begin_first_round()
        return
    method.load_local(under("local.", tensors))
    method.begin_round()
    if running := under("running.", tensors):
        method.load_shared(method.shared_state() | running)
    restore(job.optimizer, method.trainable(), under("optimizer.", tensors))


def end_training(job: Job, client_setup: ClientSetup) -> tuple[State, State]:
    """What a training leaves.

    Args:
        job: the training.
        client_setup: what all clients of the run share.

    Returns:
        The weights that may leave the client, and the tensors that stay with it.
    """
    state, method = job.method.shared_state(), job.method
    trained = {n: t for n, t in state.items() if client_setup.is_shared(n)}
    staying = {f"running.{n}": t for n, t in state.items() if n not in trained}
    staying |= {f"local.{n}": t for n, t in method.local_state().items()}
    if client_setup.experiment.train.optimizer_state == "keep":
        momenta = optimizer_state(job.optimizer, method.trainable())
        staying |= {f"optimizer.{n}": t for n, t in momenta.items()}
    return trained, staying
