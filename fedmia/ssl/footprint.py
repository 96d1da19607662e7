"""What a training has in memory in a step, by part, measured by playing one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from fedmia.ssl.bank import Bank
from fedmia.ssl.train import Job


def training_bytes(job: Job) -> dict[str, int]:
    """Bytes of a training in memory, by part.

    One step is played on the first batch. What autograd saves of its forward pass is measured,
    whatever the method, the network and their options; all else is counted in tensors. Buffers of
    the kernels and gradients of activations, of which few live at a time, are not in it.

    Args:
        job: the training; its method and its optimizer change.

    Returns:
        `weights` that leave the client, `momentum_encoder` and other weights that stay, the `bank`
        of negatives, `gradients`, `momenta` of the optimizer, `activations` of a step, and `views`
        of the images, of which several batches are drawn at once.
    """
    method, saved = job.method.train(), dict[int, int]()
    views = next(iter(job.batches()))
    shared = method.shared_modules().values()
    weights = list(chain.from_iterable(module.state_dict().values() for module in shared))
    bank = [module.rows for module in method.modules() if isinstance(module, Bank)]
    beside = [*method.parameters(), *method.buffers()]
    own = {t.untyped_storage().data_ptr() for t in chain(beside, views, weights, bank)}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    job.begin_step()
    with saved_tensors_hooks(note, lambda tensor: tensor):
        loss = job.forward(*views).mean(dim=-1).sum()
    loss.backward()
    gradients = [w.grad for w in method.trainable() if w.grad is not None]
    job.optimizer.step()
    momenta = [t for one in job.optimizer.state.values() for t in one.values()]
    return {
        "weights": size(weights),
        "momentum_encoder": size(beside) - size([*weights, *bank]),
        "bank": size(bank),
        "gradients": size(gradients),
        "momenta": size(t for t in momenta if isinstance(t, Tensor)),
        "activations": sum(saved.values()),
        "views": size(views),
    }


def size(tensors: Iterable[Tensor]) -> int:
    """Bytes of what tensors are kept in, each piece of memory once."""
    pieces = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(pieces.values())
