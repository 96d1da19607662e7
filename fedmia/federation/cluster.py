"""A Flower grid whose nodes are actors of a Ray cluster, started here or found.

Flower's own `run_simulation` hands `num_cpus` to a cluster that is there already, and then hangs;
it pickles each client's context whole, knows neither retries nor a lost worker, and is deprecated.
Here the run's images and settings go to the object store once, a round's weights once a round, and
a client's state travels with its order and its reply: nothing is read from a disk that another
machine cannot see.
"""

from __future__ import annotations

import heapq
import logging
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import ray
import torch
from flwr.app import Message, RecordDict
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError, RayError
from ray.job_config import JobConfig

from clients.app import answer
from clients.client_setup import ClientSetup
from fedmia.data.images import ByteArray
from fedmia.federation.inline import (
    LOOK,
    SERVER,
    LocalGrid,
    PendingMessage,
    error_reply,
)
from fedmia.flower_internals import set_identity
from fedmia.runtime.cores import count_cores
from fedmia.runtime.device import client_device
from fedmia.settings import session
from fedmia.settings.errors import InputError, opt
from fedmia.storage.snapshot import ClientState, StateStore
from strategies.failure_policy import FederationError

START = 120.0  # seconds in which a first worker is ready
KNOCK = 5.0  # seconds in which a cluster's port answers


def connect(address: str | None) -> bool:
    """Start Ray here, or join the cluster at `address` (`auto`, `HOST:PORT`).

    Args:
        address: of the cluster; None: the session of Ray that this process has, or a new one.

    Returns:
        Whether it is ours to end: not one that the caller's own program began.

    Raises:
        InputError: Ray cannot be started or joined.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray prints a warning
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if ray.is_initialized():
        if address in (None, "auto"):
            return False
        raise InputError(
            f"{opt('machine.ray_address', address)}: this process is in a Ray session already; end "
            "it by ray.shutdown(), or leave the address out to train there"
        )
    option = (
        opt("machine.backend", "ray") if address is None else opt("machine.ray_address", address)
    )
    if address is not None and address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), KNOCK).close()
        except OSError as error:
            raise InputError(f"{option}: nothing answers there ({error})") from error
    here = {"address": "local", "num_cpus": count_cores(), "include_dashboard": False}
    where, config = {"address": address} if address else here, JobConfig()
    # Or its workers would look into the working folder before all else: they get `sys.path`.
    config._client_job = True
    try:
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR, job_config=config)
    except Exception as error:  # it raises what comes: OSError, RuntimeError, plain Exception
        ray.shutdown()
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        hint = f"{opt('machine.backend', 'inline')} needs no Ray"
        if "AF_UNIX" in why:
            hint = "set TMPDIR to a folder with a shorter path, such as /tmp"
        what = "no Ray cluster that can be joined" if address else "Ray cannot be started"
        raise InputError(f"{option}: {what} ({why}); {hint}") from error
    return True


def disconnect() -> None:
    """End what `connect` started, or leave the cluster that it joined."""
    ray.shutdown()


@dataclass(frozen=True)
class ClientResources:
    """The part of a machine that one client uses.

    Attributes:
        cpus: CPU cores for one client.
        gpus: share of a GPU, 0 for none.
        device: where clients train, as the user gave it.
    """

    cpus: float
    gpus: float
    device: str = "auto"

    def count_fitting(self) -> int:
        """How many such clients the cluster's nodes can hold at once."""
        return sum(self._fit_node(n["Resources"]) for n in ray.nodes() if n["Alive"])

    def _fit_node(self, node: dict[str, float]) -> int:
        fits = int(node.get("CPU", 0.0) / self.cpus + 1e-9)
        if not self.gpus:
            return fits
        return min(fits, int(int(node.get("GPU", 0.0) + 1e-9) / self.claim + 1e-9))

    @property
    def claim(self) -> float:
        """What Ray is asked for: the largest share of a GPU that as many clients fit into.

        Ray adds up what is left of a machine's GPUs: of 0.6 it sends a fifth client to four GPUs,
        where it waits for ever, as no client has parts of two.
        """
        return self.gpus if not 0 < self.gpus < 1 else 1 / int(1 / self.gpus + 1e-9)


@dataclass(frozen=True)
class Placement:
    """Where an actor works.

    Attributes:
        node: the machine, by Ray's id.
        address: of the machine.
        gpus: those that the actor's process sees, as `CUDA_VISIBLE_DEVICES` names them.
        device: what its clients train on.
    """

    node: str
    address: str
    gpus: str
    device: str


def describe_placements(placements: Collection[Placement], gpus: float) -> str:
    """Where the actors work, in one line.

    Args:
        placements: of each actor.
        gpus: share of a GPU that each has, 0 for none.

    Returns:
        How many clients each GPU, or each machine's CPU, trains at once; empty where all of them
        share the CPU of one machine.
    """
    if not placements or (not gpus and len({p.address for p in placements}) == 1):
        return ""
    counts = Counter((p.address, f"GPU {p.gpus}" if gpus else "CPU") for p in placements)
    text = ", ".join(f"{n} on {part} of {host}" for (host, part), n in sorted(counts.items()))
    unused = gpus and any(p.device == "cpu" for p in placements)
    return f"clients at once: {text}" + ("; they train on the CPU" if unused else "")


Packed = tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]


class Worker:
    """An actor: one client after the other, each from the state that comes with its order.

    Args:
        path: where the process that holds the run finds modules: there may be plugins.
        packed: what all clients of the run share, and the classes of the Python session that it
            was started in, by name.
        images: uint8 (N, C, H, W) of all images.
        share: what one client takes of a machine.

    Raises:
        InputError: a GPU is named as the device, and torch finds none here.
    """

    def __init__(
        self, path: Collection[str], packed: bytes, images: ByteArray, share: ClientResources
    ) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        client_setup, classes = cloudpickle.loads(packed)
        session.receive(classes)
        set_identity(SERVER)
        device = client_device(share.device, share.gpus)
        # The images are in the object store of its machine.
        self.site = replace(client_setup, device=device, image_array=images)
        torch.set_num_threads(client_setup.threads)
        if device != "cpu" and share.gpus < 1:  # a share of Ray's is no limit by itself
            torch.cuda.set_per_process_memory_fraction(share.gpus)

    def ready(self) -> Placement:
        """Where it works, once it has been started."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        node = ray.get_runtime_context().get_node_id()
        return Placement(node, ray.util.get_node_ip_address(), visible, self.site.device)

    def answer(
        self, content: RecordDict, kind: str, client: int, state: Packed | None
    ) -> tuple[Message, Packed | None]:
        """Let a client answer an order.

        Args:
            content: all that the message holds.
            kind: Flower's message type.
            client: partition id of the client.
            state: the client's local state; None before its first round.

        Returns:
            The reply, and the client's new state where it has one.
        """
        local_state = unpack_state(state) if state is not None else None
        message = Message(content, dst_node_id=SERVER + 1 + client, message_type=kind)
        reply, new = answer(self.site, message, client, local_state)
        return reply, pack_state(new) if new is not None else None


def pack_state(state: ClientState) -> Packed:
    """Arrays, which Ray moves without copying."""
    return {n: t.detach().cpu().numpy() for n, t in state.tensors.items()}, state.memory


def unpack_state(state: Packed) -> ClientState:
    """Tensors of their own: those of the object store cannot be written."""
    return ClientState({n: torch.from_numpy(a.copy()) for n, a in state[0].items()}, state[1])


class RayGrid(LocalGrid):
    """As many actors as fit into the cluster, each a client at a time.

    Args:
        client_setup: what all clients of the run share.
        clients: number of clients.
        share: what one client takes of a machine.
        store: local states of the clients.
        timeout: seconds that a client may work on an order; then its actor is killed.
        say: shows a line to the user: where the clients train.

    Raises:
        InputError: no node can hold one client.
    """

    def __init__(
        self, client_setup: ClientSetup, clients: int, share: ClientResources,
        store: StateStore,
        timeout: float | None = None, say: Callable[[str], None] = lambda line: None,
    ) -> None:  # fmt: skip
        if not (fit := share.count_fitting()):
            option = opt("machine.cpus_per_client", f"{share.cpus:g}")
            more = f" {opt('machine.gpus_per_client', f'{share.gpus:g}')}" if share.gpus else ""
            raise InputError(f"no node of the Ray cluster holds a client of {option}{more}")
        workers = min(clients, fit)
        super().__init__(clients, workers, store, timeout)
        self._arguments = (
            [folder or os.getcwd() for folder in sys.path],
            ray.put(cloudpickle.dumps((client_setup, dict(session.classes())))),
            ray.put(np.ascontiguousarray(client_setup.images)),
            share,
        )
        self._kind: Any = ray.remote(
            num_cpus=share.cpus, num_gpus=share.claim, max_restarts=0, max_task_retries=0
        )(Worker)
        self._contents: dict[int, tuple[RecordDict, Any]] = {}
        self._idle: list[Any] = []
        self._starting: dict[Any, Any] = {}
        self._placements: dict[Any, Placement] = {}
        self._say, self._share = say, share
        self._spare = workers  # of them may be lost before they are ready
        for _ in range(workers):
            self._start_worker()
        self._deadline = time.monotonic() + START

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Queue the messages, slowest client first."""
        names = super().push_messages(messages)
        self._dispatch()
        return names

    def close(self) -> None:
        """Give the cluster back what the actors took."""
        if self._starting:  # the rounds were over before all actors were ready
            self._say_placements()
        working = [order.actor for order in self._working.values()]
        for actor in [*self._idle, *self._starting.values(), *working]:
            ray.kill(actor)

    def _start_worker(self) -> None:
        self._call(self._kind.remote(*self._arguments))

    def _call(self, actor: Any) -> None:
        """Ask an actor whether it is ready; until it answers it gets no order."""
        self._starting[actor.ready.remote()] = actor

    def _dispatch(self) -> None:
        """Give waiting orders to idle actors."""
        while self._waiting and self._idle:
            order = heapq.heappop(self._waiting)
            message, local_state = order.message, self.load_client_state(order)
            order.actor, order.began = self._idle.pop(), time.monotonic()
            reply = order.actor.answer.remote(
                self._store_content(message.content), message.metadata.message_type,
                self.client(order), pack_state(local_state) if local_state is not None else None,
            )  # fmt: skip
            self._working[reply] = order

    def _store_content(self, content: RecordDict) -> Any:
        """A content in the object store: once for all clients that are sent it."""
        if id(content) not in self._contents:
            self._contents = {id(content): (content, ray.put(content))}  # those before are over
        return self._contents[id(content)][1]

    def _wait(self) -> None:
        self._dispatch()
        out = [*self._starting, *self._working]
        ready, _ = ray.wait(out, num_returns=1, timeout=LOOK) if out else ([], [])
        for one in ready:
            if one in self._starting:
                self._note_started(one)
            else:
                self._note_answered(one)
        if not self._idle and not self._working and time.monotonic() > self._deadline:
            raise FederationError(f"no worker of the Ray cluster was ready within {START:g} s")

    def _note_started(self, one: Any) -> None:
        actor = self._starting.pop(one)
        known = actor in self._placements
        try:
            self._placements[actor] = ray.get(one)
        except RayError as error:
            lost = isinstance(error, RayActorError) and not error.actor_init_failed
            if known or (lost and self._spare):  # with its machine, perhaps while it started
                self._spare -= not known
                self._replace_worker(actor)
                return
            why = str(error).strip().splitlines()[-1]  # of its constructor, if that raised
            raise FederationError(f"a Ray worker cannot start: {why}") from error
        self._idle.append(actor)
        if not (self._starting or known):
            self._say_placements()

    def _say_placements(self) -> None:
        if line := describe_placements(self._placements.values(), self._share.gpus):
            self._say(line)

    def _note_answered(self, one: Any) -> None:
        order, new = self._working.pop(one), None
        try:
            reply, packed = ray.get(one)
            new = unpack_state(packed) if packed is not None else None
            self._idle.append(order.actor)
        except RayError as error:
            reply = error_reply(order.message, describe_failure(error))
            doubtful = [*self._idle, order.actor]  # with the machine all its actors are lost
            self._idle.clear()
            if isinstance(error, RayActorError | OutOfMemoryError):
                self._replace_worker(doubtful.pop())
            for actor in doubtful:
                self._call(actor)
        self._took[order.message.metadata.dst_node_id] = time.monotonic() - order.began
        self._done[order.name] = order, reply, new

    def _replace_worker(self, actor: Any) -> None:
        """Another actor for one that died, or that does not answer."""
        ray.kill(actor)  # one that only lost its connection would keep its share
        self._placements.pop(actor, None)
        self._deadline = time.monotonic() + START
        self._start_worker()

    def _abandon(self, order: PendingMessage) -> None:
        self._replace_worker(order.actor)


def describe_failure(error: RayError) -> str:
    """What befell a worker, in one line."""
    if isinstance(error, OutOfMemoryError):
        larger = opt("machine.cpus_per_client")
        return f"its Ray worker was killed for memory; a larger {larger} packs fewer"
    if isinstance(error, RayActorError):
        return "its Ray worker died"
    if isinstance(error, GetTimeoutError):
        return "its Ray worker did not answer"
    return f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
