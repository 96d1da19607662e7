"""Which client attacks: what each update of a recording did, beside those of the other clients.

It sees weights and public images alone, never who the clients are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from torch import Tensor

from fedmia.defenses.sensitivity import measure_update
from fedmia.records.client_rows import SuspectRow
from fedmia.records.fields import row_of
from fedmia.rounds.kept import spread_rounds
from fedmia.seeding import rng
from fedmia.ssl.base import State, all_finite
from fedmia.statistics.suspicion import (
    FEWEST,
    FloatArray,
    alarm_threshold,
    by_round,
    suspicions,
)
from fedmia.threat import Meter, WhiteBox

PUBLIC = 64  # most public images whose loss is read
PAIRS = 2  # of views of an image, over which a loss is averaged
DIVERGED = 1e9  # in place of a loss that is not finite
StateLoss = Callable[[State], float]


def measure_round(
    before: State, sent: Mapping[int, State], loss: StateLoss | None = None
) -> FloatArray:
    """Norm, cosine and loss of each update of a round.

    The cosine is with the mean direction of the others' updates, so that none of them counts more
    for being long. Every state is read twice, and one is held at a time.

    Args:
        before: the weights that the clients received.
        sent: client -> the weights that it sent.
        loss: of the model of some weights, on images that no client trained on; None: not known.

    Returns:
        (3, C), clients in their order: L2 norm; cosine in [-1, 1]; loss with this client's update
        alone less the loss before. The norm of an update that is not finite is infinite. Cosine and
        loss are NaN of such a one and of one that is zero, and where the loss is not known.
    """
    total: State = {}
    norms = list[float]()
    for state in sent.values():
        update, norm = measure_update(state, before, 2)
        norms.append(norm)
        for name, tensor in update.items() if norm else ():
            unit = tensor / norm
            total[name] = total[name] + unit if name in total else unit
    squared = sum(float((tensor**2).sum()) for tensor in total.values())
    measured = np.full((3, len(sent)), np.nan)
    reference = loss(before) if loss is not None else np.nan
    for at, (state, norm) in enumerate(zip(sent.values(), norms, strict=True)):
        if not norm:
            measured[0, at] = 0 if all_finite(state.values()) else np.inf
            continue
        update, _ = measure_update(state, before, 2)
        along = sum(float((update[n] * total[n]).sum()) for n in update) / norm
        others = max(squared - 2 * along + 1, 0) ** 0.5  # length of the others' sum
        measured[:2, at] = norm, (along - 1) / others if others > 0 else np.nan
        if loss is not None:
            measured[2, at] = np.nan_to_num(loss(state) - reference, nan=DIVERGED, posinf=DIVERGED)
    return measured


def rank_suspects(
    before: Mapping[int, State],
    updates: Mapping[int, Mapping[int, State]],
    loss: StateLoss | None = None,
    clients: Collection[int] = (),
) -> list[SuspectRow]:
    """One suspicion a client, the highest first; of many rounds those evenly spread.

    Args:
        before: round -> the weights that its clients received.
        updates: round -> client -> the weights that it sent.
        loss: as of `measure_round`.
        clients: that took part, whatever they sent.

    Returns:
        A row a client, without a suspicion where nothing that it sent can be compared; none where
        no round can.
    """
    known = sorted(before.keys() & updates.keys())
    chosen = {r: updates[r] for r in spread_rounds(known)}
    rounds, compared, (norms, cosines, losses) = measure_rounds(before, chosen, loss)
    if not rounds:
        return []
    standing = by_round(norms, cosines, None if loss is None else losses)
    suspicion = suspicions(standing, rng(0, "honest clients"))
    complete = loss is not None and bool(np.isfinite(standing).all())
    threshold = alarm_threshold(len(compared), len(rounds)) if complete else None
    usual = np.nanmedian(np.where(np.isfinite(cosines), norms, np.nan), axis=1, keepdims=True)
    values = norms / usual, cosines, losses
    rows = list[SuspectRow]()
    for at in np.argsort(-suspicion, kind="stable"):  # NaN comes last
        if np.isnan(suspicion[at]):
            rows.append(row_of(SuspectRow, None, client=compared[at]))
            continue
        most = int(np.nanargmax(standing[:, at]))
        norm, cosine, change = (
            x if np.isfinite(x) else None for x in (float(each[most, at]) for each in values)
        )
        rows.append(SuspectRow(
            client=compared[at], round=rounds[most], norm=norm, cosine=cosine, loss_change=change,
            suspicion=float(suspicion[at]),
            alarm=None if threshold is None else bool(suspicion[at] > threshold),
        ))  # fmt: skip
    others = sorted({*clients} - {*compared})
    return [*rows, *(row_of(SuspectRow, None, client=client) for client in others)]


def measure_rounds(
    before: Mapping[int, State],
    updates: Mapping[int, Mapping[int, State]],
    loss: StateLoss | None = None,
) -> tuple[list[int], list[int], FloatArray]:
    """`measure_round` of each round with at least 3 updates, two of them sound, whose received
    model is known.

    Args:
        before: round -> the weights that its clients received.
        updates: round -> client -> the weights that it sent.
        loss: as of `measure_round`.

    Returns:
        The rounds (R), the clients (C), ascending, and (3, R, C); NaN where a client sent nothing.
    """
    rounds = [r for r in sorted(updates) if r in before and len(updates[r]) >= FEWEST]
    clients = sorted({client for r in rounds for client in updates[r]})
    measured = np.full((3, len(rounds), len(clients)), np.nan)
    for at, round in enumerate(rounds):
        columns = np.searchsorted(clients, [*updates[round]])
        measured[:, at, columns] = measure_round(before[round], updates[round], loss)
    enough = np.isfinite(measured[1]).sum(axis=1) > 1  # of which two have a direction
    return np.array(rounds)[enough].tolist(), clients, measured[:, enough]


def public_loss(view: WhiteBox, images: Tensor) -> StateLoss:
    """The loss of the view's network with other weights: its mean over public images.

    Args:
        view: of any weights; with images held where the loss needs negatives.
        images: uint8 (N, C, H, W) that no client trained on.

    Returns:
        A function of the weights.
    """

    def loss(state: State) -> float:
        losses = view.of_weights(state, meter=Meter()).losses(images, PAIRS, "held")
        return float(losses.double().mean())

    return loss
