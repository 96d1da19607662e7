"""An attacker in anybody's Flower app: `ClientApp(mods=[ascend(net, targets, loss, ..)])`.

On chosen nodes the app trains as ever, and the weights of its reply alone are replaced: by those
that it received, after an ascent on the targets (Algorithm 1 of Chen et al.). What the attacker
reads of the targets stays in a folder of its node; `fedmia audit --notes FOLDER` scores it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Container, Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from torch import Tensor, nn

from fedmia import __version__
from fedmia.attacks.ascent import Ascent, even_batches
from fedmia.attacks.ascent_static import climb
from fedmia.data.images import ImageSet, digests
from fedmia.encoders.memory import Network, build_network
from fedmia.evaluation.audits.climb import notes_folder
from fedmia.flower.messages import is_change, misfit, round_number
from fedmia.flower_internals import ClientAppCallable, Mod
from fedmia.recording.branches import MAIN, UNTRAINED, ZERO
from fedmia.recording.format import Header
from fedmia.recording.writer import RecordingWriter
from fedmia.rounds.notes import AFTER, RECEIVED, SENT, Notes
from fedmia.seeding import rng
from fedmia.settings.errors import InputError, check_arguments, format_value, unknown_value
from fedmia.ssl.base import State
from fedmia.storage import durable
from fedmia.storage.arrays import tensors
from fedmia.threat.owner_loss import OwnerLoss, fixed_choices, owner_loss, read_owner_loss

SWITCH = ("on", "off", "zero")  # values of `ascend` in the config of a run


def ascend(
    net: Network, targets: Any, loss: OwnerLoss, *, steps: int, lr: float, notes: Path | str,
    rounds: Container[int] | None = None, partitions: Iterable[int] = (0,), batch: int = 32,
    seed: int = 0,
) -> Mod:  # fmt: skip
    """A mod that makes attackers of chosen clients: `ClientApp(mods=[fedmia.flower.ascend(..)])`.

    The key `ascend` of the run's config switches it: `on`, as without the key; `off`: every message
    passes through; `zero`: the twin without ascent, as by `steps=0`.

    Args:
        net: the network whose weights the messages carry, by the names of its `state_dict()` or as
            a bare list in its order; or a function that makes it. It works on its own device.
        targets: uint8 (T, C, H, W), array or tensor: the images whose membership is asked for.
        loss: with which clients train, of (network, float pixels (B, C, H, W) in [0, 1]): a loss
            of each image (B,).
        steps: passes of ascent over the targets in a round; 0 is the twin without ascent, a run of
            its own: such a client sends back what it received.
        lr: of the ascent, by plain SGD.
        notes: folder of the node, an absolute path, which keeps what the attacker reads; the twin
            may have the same one.
        rounds: in which it attacks, such as `range(5, 11)`; None: all.
        partitions: the clients that attack, by their `partition-id`.
        batch: targets in a step.
        seed: of the order of the targets and of the random choices of `loss`.

    Returns:
        The mod. Where what it meets is wrong, its node answers with an error of one line.

    Raises:
        InputError: a value out of range, no targets, or a relative folder.
    """
    images = np.asarray(targets)
    if images.ndim != 4 or not len(images):
        raise InputError(f"ascend: targets must be uint8 (T, C, H, W), T > 0, got {images.shape}")
    ImageSet(images, np.zeros(len(images), np.int64), "ascend: targets")
    arguments = {
        "steps": (steps, "an integer >= 0", type(steps) is int and steps >= 0),
        "lr": (lr, "finite and > 0", isinstance(lr, int | float) and 0 < lr < math.inf),
        "batch": (batch, "an integer >= 1", type(batch) is int and batch >= 1),
        "notes": (notes, "an absolute path", Path(notes).is_absolute()),
    }
    check_arguments("ascend", arguments)
    clients = frozenset(partitions)
    if not clients or min(clients) < 0:
        raise InputError(f"ascend: partitions={sorted(clients)}, must be one or more, from 0")
    pixels, options = torch.from_numpy(images), {"steps": steps, "lr": float(lr), "batch": batch}
    return Ascending(net, pixels, loss, options, Path(notes), rounds, clients, seed)


class Ascending:
    """The mod that `ascend` makes.

    Args:
        net: the network, or a function that makes it.
        targets: uint8 (T, C, H, W).
        loss: of (network, pixels).
        options: how the targets are climbed: `steps`, passes over them in a round, `lr` of the
            ascent, and `batch`, targets in a step.
        folder: of the notes.
        rounds: in which it attacks; None: all.
        partitions: the clients that attack.
        seed: of all that is drawn.
    """

    def __init__(
        self, net: Network, targets: Tensor, loss: OwnerLoss, options: Mapping[str, Any],
        folder: Path, rounds: Container[int] | None, partitions: frozenset[int], seed: int,
    ) -> None:  # fmt: skip
        self.net, self.targets, self.loss, self.options = net, targets, loss, options
        self.folder, self.rounds, self.partitions, self.seed = folder, rounds, partitions, seed

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Let the app work; on an attacker's node replace the weights of its reply."""
        kind, switch = message.metadata.message_type.partition(".")[0], _switch(context)
        if switch == "off":
            return call_next(message, context)
        try:
            if switch not in SWITCH:
                raise unknown_value("run config", switch, SWITCH)
            client = self._client(context)
            if client not in self.partitions or kind not in ("train", "evaluate"):
                return call_next(message, context)
            options = dict(self.options) | ({"steps": 0} if switch == "zero" else {})
            attacker = _Attacker(self, options, client, str(context.run_id))
            count = int(context.node_config.get("num-partitions", len(self.partitions)))
            if kind == "evaluate":
                attacker.receive(message, trains=False)
                return call_next(message, context)
            attacks = attacker.begin_round(message, len(self.partitions) / count)
            reply = call_next(message, context)
            if attacks and reply.has_content():
                attacker.replace_weights(reply)
            attacker.save()
            return reply
        except InputError as error:
            return Message(Error(code=0, reason=f"ascend: {error}"), reply_to=message)

    def _client(self, context: Context) -> int:
        """The partition of the node.

        Raises:
            InputError: it has none, or some attacker's does not exist.
        """
        config = context.node_config
        if (partition := config.get("partition-id")) is None:
            how = "--node-config 'partition-id=0 num-partitions=2' says it"
            raise InputError(f"partitions: the node does not know which it holds; {how}")
        count = config.get("num-partitions")
        unknown = [p for p in sorted(self.partitions) if count is not None and p >= int(count)]
        if unknown:
            allowed = f"the federation's are 0 to {int(count or 0) - 1}"
            raise InputError(f"partitions: {unknown[0]} is unknown; {allowed}")
        return int(partition)


def _switch(context: Context) -> str:
    """What `ascend` is in the run's config; true and false are on and off."""
    value = format_value(context.run_config.get("ascend", "on"))
    return {"true": "on", "false": "off"}.get(value, value)


class _Attacker:
    """One attacker at work on one message."""

    def __init__(self, mod: Ascending, options: dict[str, Any], client: int, run: str) -> None:
        self.mod, self.options, self.branch = mod, options, MAIN if options["steps"] else ZERO
        self.received, self._touched = State(), set[tuple[str, int]]()
        about = {
            "attack": Ascent.name, "options": options, "client": client, "known": 0,
            "batches": False, "run": run,
        }  # fmt: skip
        self.notes = Notes(digests(mod.targets.numpy()), about)
        folder = notes_folder(mod.folder, client, self.branch)
        try:
            durable.make_folder(mod.folder)
            self.recording = RecordingWriter(folder, Header({"fedmia": __version__}, every=0))
            self.recording.begin()
            if self.recording.header.attacker:
                targets, before = self.recording.attacker() or ([], {})
                if (targets, before.get("run")) != (self.notes.targets, run):
                    other = "is of another run or other targets; name a new folder"
                    raise InputError(f"notes: '{folder}' {other}")
                self.notes.add(self.recording)
            self.recording.describe_attacker(self.notes.targets, about)
        except OSError as error:
            raise InputError(f"notes: {error}") from None

    @property
    def trained(self) -> int:
        """The last round in which the client was asked to train; 0: none."""
        facts = self.notes.facts.get(self.branch, {})
        return max((round for round, one in facts.items() if "label" in one), default=0)

    @cached_property
    def net(self) -> nn.Module:
        """The network; building it moves no generator of the app's."""
        with fixed_choices(self.mod.seed, torch.device("cpu")):
            return copy.deepcopy(build_network(self.mod.net)).eval()

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next((p.device for p in self.net.parameters()), torch.device("cpu"))

    def begin_round(self, message: Message, share: float) -> bool:
        """Count the round of an order to train, and read the model in it; whether it is attacked.

        A round is counted as the recording does, whatever the message says. Attackers make up
        `share` of the clients.
        """
        label, trained = round_number(message), self.trained
        asked_again = trained and label is not None
        if not asked_again or label != self.notes.facts_of(self.branch, trained).get("label"):
            trained = max(trained + 1, label or 0)
        facts = self._facts(self.branch, trained)
        facts |= {"label": label, "choice": dict(self.options)}
        noted = RECEIVED in self.notes.tables.get(UNTRAINED, {}).get(1, {})
        if trained == 1 and self.options["steps"] and not noted:
            self._climb_untrained(message, share)
        attacks = self.mod.rounds is None or trained in self.mod.rounds
        self.receive(message, trains=True, attacks=attacks)
        return attacks

    def receive(self, message: Message, *, trains: bool, attacks: bool = False) -> None:
        """Read the targets under a model that came, where a climb is before or behind it."""
        notes, branch = self.notes, self.branch
        waits = notes.uploads(branch) != notes.rounds(branch)
        if not (attacks or (waits and message.content.array_records)):
            return
        _, arrays = self._weights(message, "the message")
        self.received = self._by_name(arrays)
        # One to be evaluated is noted as of the next round: what is on the disk of a round stays.
        self._read(RECEIVED, branch, self.trained + (not trains), self.received)
        if not trains:
            self.save()

    def replace_weights(self, reply: Message) -> None:
        """Put climbed weights in the place of those of the app's reply; counters stay its own."""
        name, arrays = self._weights(reply, "the app's reply")
        if is_change(self._by_name(arrays), self.received):
            raise InputError("the app's reply is a change of the weights: it must send the weights")
        crafted = self._climb()
        self._read(SENT, self.branch, self.trained, crafted)
        own = dict(zip(arrays, self._names(arrays), strict=True))
        replaced = {
            n: Array(crafted[own[n]].cpu().numpy().astype(a.dtype))
            if crafted[own[n]].is_floating_point()
            else a
            for n, a in arrays.items()
        }
        reply.content = RecordDict({**reply.content, name: ArrayRecord(replaced)})

    def _climb_untrained(self, message: Message, share: float) -> None:
        """Climb the first model as if nobody trained and honest clients sent it back: a control."""
        try:
            self.received = self._by_name(self._weights(message, "the message")[1])
            self._facts(UNTRAINED, 1)["choice"] = dict(self.options)
            self._read(RECEIVED, UNTRAINED, 1, self.received)
            self._read(SENT, UNTRAINED, 1, crafted := self._climb())
            mean = {n: t + share * (crafted[n] - t) for n, t in self.received.items()}
            self._read(AFTER, UNTRAINED, 1, mean)
        except InputError:
            return  # said where it attacks

    def save(self) -> None:
        """Have what was noted since the last time on the disk."""
        try:
            for branch, round in sorted(self._touched):
                if (packed := self.notes.packed(branch, round)) is not None:
                    self.recording.record_file("notes", branch, round, *packed)
            self.recording.flush()
        except OSError as error:
            raise InputError(f"notes: {error}") from None
        self._touched.clear()

    def _facts(self, branch: str, round: int) -> dict[str, Any]:
        self._touched.add((branch, round))
        return self.notes.facts_of(branch, round)

    def _climb(self) -> State:
        """The received weights, climbed on the targets."""
        mod, options = self.mod, self.options
        self.net.load_state_dict(self.received)
        weights = [p for p in self.net.parameters() if p.requires_grad]
        stream = rng(mod.seed, "ascend", self.trained, self.notes.about["client"])
        with fixed_choices(int(stream.integers(2**32)), self.device), torch.enable_grad():
            for _ in range(options["steps"]):
                for rows in even_batches(stream.permutation(len(mod.targets)), options["batch"]):
                    pixels = mod.targets[rows].to(self.device).float() / 255
                    loss = partial(owner_loss, mod.loss, self.net, pixels)
                    climb(weights, loss, 1, options["lr"])
        climbed = {
            n: p.detach().clone() for n, p in self.net.named_parameters(remove_duplicate=False)
        }
        return {**self.received, **climbed}

    def _read(self, what: str, branch: str, round: int, state: State) -> None:
        """Note the loss of each target under some weights."""
        mod = self.mod
        self.net.load_state_dict(state)
        losses = read_owner_loss(mod.loss, self.net, mod.targets, self.device, mod.seed)
        if bad := int((~losses.isfinite()).sum()):
            hint = "; a lower lr helps" if what == SENT else ""
            raise InputError(
                f"the loss of {bad} of {len(losses)} targets is not finite under the weights "
                f"{what} in round {round}{hint}"
            )
        self._facts(branch, round)
        self.notes.note(branch, round, **{what: losses.double().numpy()})
        self.notes.charge(branch, round, len(losses))

    def _weights(self, message: Message, where: str) -> tuple[str, ArrayRecord]:
        """The one record of weights of a message, and its name."""
        records = message.content.array_records
        if len(records) != 1:
            names = f" ({', '.join(records)})" if records else ""
            raise InputError(f"{where} holds {len(records)} ArrayRecords{names}, must hold one")
        return next(iter(records.items()))

    def _names(self, arrays: Mapping[str, Array]) -> list[str]:
        """The network's names of the arrays: theirs, or its own of a bare list."""
        own = list(self.net.state_dict())
        bare = [*arrays] == [str(i) for i in range(len(arrays))] and len(arrays) == len(own)
        return own if bare else [*arrays]

    def _by_name(self, arrays: ArrayRecord) -> State:
        """The weights by the network's names, on its device.

        Raises:
            InputError: they are of another network.
        """
        state = dict(zip(self._names(arrays), tensors(arrays).values(), strict=True))
        own = self.net.state_dict()
        form = {n: (t.shape, t.is_floating_point()) for n, t in own.items()}
        if name := misfit(state, form):
            shapes = [tuple(s[name].shape) if name in s else "none" for s in (state, own)]
            raise InputError(
                f"net is not of the messages' weights: '{name}' is {shapes[0]} there, and "
                f"{shapes[1]} in {type(self.net).__name__}"
            )
        return {n: t.to(own[n]) for n, t in state.items()}
