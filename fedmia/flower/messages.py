"""What the messages of a Flower server say of its federation, written to a recording.

A message carries each global model as it is sent, and each update as it returns, before a strategy
changes it. A round begins with the first order to train that says another round, or holds another
model, than the order before it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord

from fedmia.recording.branches import MAIN
from fedmia.recording.format import RecordedRound
from fedmia.recording.thread import RecordingThread
from fedmia.recording.writer import RecordingWriter, describe_size
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.storage.arrays import tensors

ROSTER = "fedmia.roster"  # the record of a reply that says which partition a node holds
EXAMPLES = ("num-examples", "num_examples")
log = logging.getLogger("flwr")


class MessageRecorder:
    """Records what a server sends and receives; every method may be called from any thread.

    Args:
        writer: of the recording; from now on a thread alone writes by it.
        arrays: name of the record of the weights, where a message holds several; else None.
        look: called with each new model, as it is about to be sent: the round after which it was
            made, and its weights; whether the federation goes on.
    """

    def __init__(
        self, writer: RecordingWriter, arrays: str | None,
        look: Callable[[int, State], bool],
    ) -> None:  # fmt: skip
        self._writer, self._arrays, self._look = writer, arrays, look
        self._thread = RecordingThread(writer.folder, log.warning)  # it alone writes
        self._lock = RLock()
        self._line: RecordedRound | None = None  # of the round that goes on
        self._began = 0.0
        self._order: tuple[int | None, int] = (None, 0)  # its round, as a message says; its model
        self._written = (-1, 0)  # the last model that is written: after which round; its digest
        self._form = dict[str, tuple[torch.Size, bool]]()  # of the first model
        self._model_sent = State()
        self._weights_sent = False  # by any client; else they may send changes
        self._numbers = dict[int, int]()  # of each node
        self._missed = set[str]()
        self._stopped = False  # by the look

    @property
    def failure(self) -> str:
        """Why recording ended early; empty while it goes on."""
        return self._thread.failure

    def see_orders(self, messages: Sequence[Message]) -> int:
        """Record the model that a server sends.

        Args:
            messages: to its clients.

        Returns:
            The round of orders to train; 0: they are none.

        Raises:
            InputError: what they hold cannot be recorded, in the first round, when nothing is lost.
        """
        kinds = {m.metadata.message_type.partition(".")[0] for m in messages}
        with self._lock, self._ending():
            if self._thread.failure or self._stopped or not kinds <= {"train", "evaluate"}:
                return 0
            models = [arrays for m in messages if (arrays := self._model(m)) is not None]
            if not models:
                return 0
            model, digest = models[0], digest_of(models[0])
            if any(one is not model and digest_of(one) != digest for one in models):
                raise InputError("each client gets a model of its own")
            if "train" in kinds:
                return self._see_trained(messages, model, digest)
            if self._line is not None and not misfit(tensors(model), self._form):
                self._write_model(self._line.round, model, digest)
        return 0

    def see_replies(self, number: int, replies: Sequence[Message]) -> None:
        """Record what clients sent, and take the roster's records out of their replies.

        Args:
            number: of the round whose orders they answer; 0: it is not recorded.
            replies: of the clients.
        """
        for reply in replies:
            if reply.has_content():
                partition = partition_of(reply.content.pop(ROSTER, None))
                with self._lock:
                    if number and not self._thread.failure:
                        self._see_reply(number, reply, partition)

    def final(self, arrays: ArrayRecord) -> None:
        """Record the last aggregate, which no message carries.

        Args:
            arrays: `result.arrays` of the strategy, or those of a loop of your own.
        """
        with self._lock, self._ending():
            if self._line is None:
                log.warning("recording: final() came before the first round or after the end")
            elif not self._thread.failure:
                self._write_model(self._line.round, arrays, digest_of(arrays))

    def close(self) -> None:
        """Write the line of the round that went on, and end the recording."""
        with self._lock:
            self._end_round()
            self._line = None
            self._thread.close()

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Refuse in the first round what cannot be recorded; end the recording later."""
        try:
            yield
        except (EOFError, TypeError, ValueError) as error:
            if self._line is None:
                raise InputError(f"recording: {error}") from None
            self._end_round()
            self._thread.close(str(error))
            log.warning("recording to %s ended: %s", self._writer.folder, error)

    def _model(self, order: Message) -> ArrayRecord | None:
        records = order.content.array_records if order.has_content() else {}
        if self._arrays is None and len(records) > 1:
            names = ", ".join(records)
            raise InputError(f"messages hold several ArrayRecords: arrays= names one of {names}")
        return records.get(self._arrays) if self._arrays else next(iter(records.values()), None)

    def _see_trained(self, messages: Sequence[Message], model: ArrayRecord, digest: int) -> int:
        line, label = self._line, round_number(messages[0])
        if line is None or (label, digest) != self._order:
            if line is None:
                self._begin(tensors(model))
            elif label is not None and label == self._order[0]:
                raise InputError(
                    f"two models were sent in round {label}: each client gets one of its own, or "
                    "messages do not count their rounds"
                )
            number = max(line.round + 1 if line else 1, label or 0)
            self._end_round()
            self._write_model(number - 1, model, digest)
            if self._stopped:
                self._line = RecordedRound(MAIN, number - 1)
                return 0
            self._line = line = RecordedRound(MAIN, number)
            self._order, self._began = (label, digest), time.perf_counter()
        for message in messages:
            self._numbers.setdefault(message.metadata.dst_node_id, len(self._numbers))
        return line.round

    def _begin(self, state: State) -> None:
        self._form = {n: (t.shape, t.is_floating_point()) for n, t in state.items()}
        if [*state] == [str(place) for place in range(len(state))]:
            self._thread.call(partial(self._writer.describe, names=False))
        size = describe_size(state, self._writer.header.updates)
        log.info("recording to %s: %s", self._writer.folder, size)

    def _see_reply(self, number: int, reply: Message, partition: int | None) -> None:
        line = self._line
        client = self._numbers.setdefault(reply.metadata.src_node_id, len(self._numbers))
        client = client if partition is None else partition
        if line is None or line.round != number:
            return self._miss(number, client, "came after its round")
        if client in line.cohort:
            return self._miss(number, client, "came twice, or two nodes say that they are it")
        metrics = metrics_of(reply)
        line.named_by = "nodes" if partition is None else line.named_by
        line.seconds = round(time.perf_counter() - self._began, 3)
        line.cohort = sorted([*line.cohort, client])
        line.metrics[client] = metrics
        if examples := [metrics[name] for name in EXAMPLES if name in metrics]:
            line.examples[client] = examples[0]
        if self._writer.header.updates == "none":
            return None
        records = reply.content.array_records
        arrays = records.get(self._arrays or "") or [*records.values(), None][0]
        if arrays is None or (len(records) > 1 and self._arrays not in records):
            return self._miss(number, client, f"holds {len(records)} records of weights")
        try:
            state = tensors(arrays)
        except (EOFError, TypeError, ValueError) as error:
            return self._miss(number, client, f"cannot be read: {error}")
        if name := misfit(state, self._form):
            return self._miss(number, client, f"is partial or masked: see '{name}'")
        if not is_change(state, self._model_sent):
            self._weights_sent = True
        elif not self._weights_sent:  # else the app sends weights, and this client others
            return self._miss(number, client, "is a change of the weights: send the weights")
        return self._thread.call(partial(self._write_update, line, client, state), tensors=True)

    def _miss(self, number: int, client: int, why: str) -> None:
        """Say the first of each kind."""
        if why not in self._missed:
            self._missed.add(why)
            log.warning("recording: the update of client %d in round %d %s; it is not kept, nor "
                        "are others like it", client, number, why)  # fmt: skip

    def _write_update(self, line: RecordedRound, client: int, state: State) -> None:
        line.updates[client] = self._writer.save_update(MAIN, line.round, client, state)

    def _end_round(self) -> None:
        if self._line is not None:
            self._thread.call(partial(self._write_line, self._line))

    def _write_line(self, line: RecordedRound) -> None:
        self._writer.add(line)
        self._writer.flush()

    def _write_model(self, number: int, arrays: ArrayRecord, digest: int) -> None:
        """Write a model that is new, and look at it."""
        if (number, digest) != self._written:
            state = tensors(arrays)
            if name := misfit(state, self._form):
                raise InputError(f"the model differs in names or shapes from the first: '{name}'")
            self._model_sent = state
            self._thread.call(partial(self._writer.save, MAIN, number, state), tensors=True)
            self._thread.call(self._writer.flush)
            self._written = number, digest
            self._stopped = not self._look(number, state)


def round_number(message: Message) -> int | None:
    """The round that a message says: `server-round`, else a number as its group."""
    for config in message.content.config_records.values():
        if isinstance(number := config.get("server-round"), int):
            return number
    group = message.metadata.group_id
    return int(group) if group and group.isdecimal() else None


def partition_of(record: Any) -> int | None:
    """The partition that a roster's record says."""
    partition = record.get("partition") if isinstance(record, ConfigRecord) else None
    return partition if isinstance(partition, int) and partition >= 0 else None


def metrics_of(reply: Message) -> dict[str, float]:
    """Every number of a reply's metrics by its name."""
    records: Iterable[MetricRecord] = reply.content.metric_records.values()
    numbers = (item for one in records for item in one.items())
    return {name: float(value) for name, value in numbers if isinstance(value, int | float)}


def misfit(state: State, form: dict[str, tuple[torch.Size, bool]]) -> str:
    """The first tensor of another name or shape, or an integer where the first model has none.

    Integers may become fractions: FedAvg averages the counters of BatchNorm.

    Args:
        state: a model or an update.
        form: shape of each tensor of the first model, and whether it holds fractions.

    Returns:
        Its name; empty: there is none.
    """
    for name in {**form, **state}:
        if name not in form or name not in state or state[name].shape != form[name][0]:
            return name
        if form[name][1] and not state[name].is_floating_point():
            return name
    return ""


def is_change(state: State, model: State) -> bool:
    """Whether a client sent how it changed the model, and not its weights.

    Args:
        state: what it sent.
        model: that it received, of the same names and shapes.

    Returns:
        Whether less than a quarter of the model is in it: weights are the model and little else, a
        change has next to nothing of it.
    """
    both = [(state[n], t) for n, t in model.items() if t.is_floating_point()]
    pairs = [(a.double(), b.double()) for a, b in both if a.is_floating_point()]
    inner = sum(float((a * b).sum()) for a, b in pairs)
    return 4 * inner < sum(float(b.square().sum()) for _, b in pairs)


def digest_of(arrays: ArrayRecord) -> int:
    """Tells models apart as they are sent; Python keeps the digest of bytes with them."""
    return hash(tuple((name, array.data) for name, array in arrays.items()))
