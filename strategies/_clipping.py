"""Updates clipped to a ball around the weights that the clients received."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fedmia.defenses.sensitivity import measure_update, protected
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Update


def clip_state(received: State, sent: State, bound: float) -> tuple[State, float]:
    """`sent` with its float weights pulled to an L2 distance of at most `bound` from `received`,
    and the distance before; within the ball, the weights as they are.

    The norm is of the float weights alone: a counter of steps would fill it. Counters and batch
    norm's statistics stay as received, and so does all of an update without a finite norm.
    """
    names = protected(sent)
    update, length = measure_update(sent, received, 2)
    unclipped = {n: received[n] for n in sent}
    if not length:
        return unclipped, length
    if length <= bound:
        return unclipped | {n: sent[n] for n in names}, length
    scale = bound / length
    return unclipped | {n: received[n].double() + scale * update[n] for n in names}, length


def clip_each(
    received: State, updates: Iterable[Update], bound: float, lengths: list[float]
) -> Iterator[Update]:
    """The same of each update, as it comes; its distance before goes to `lengths`."""
    for update in updates:
        state, length = clip_state(received, update.state, bound)
        lengths.append(length)
        yield replace(update, state=state)


def match_dtypes(state: State, received: State) -> State:
    """Tensors in the types of `received`."""
    return {n: t.to(received[n].dtype) for n, t in state.items()}
