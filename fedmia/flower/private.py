"""A run on images that stay on their nodes: what a node prepares, and what the server does."""

from __future__ import annotations

import contextlib
import functools
import itertools
import tempfile
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np

from clients.client_setup import ClientSetup
from fedmia.data.cast import Cast
from fedmia.data.images import ImageSet, IntArray
from fedmia.federation.plan import Plan, make_client_setup, try_method
from fedmia.seeding import ENTROPY, rng, root
from fedmia.settings import registry
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.dataset_names import split_dataset
from fedmia.settings.errors import InputError, opt
from fedmia.settings.tree import from_tree
from fedmia.settings.values import disk_path
from fedmia.untrusted.text import parse_json

SIDES = ("members", "nonmembers")  # data sources of a node, in its `--node-config`
SOURCES = (*SIDES, "public")  # the last where the settings ask for images that no client holds


def check(experiment: Experiment) -> None:
    """Refuse options that need images of other nodes, or a node's count of queries.

    Raises:
        InputError: an attacker in the federation, pre-training on the server, a query budget, a
            sweep, subjects, or a placebo.
    """
    if experiment.attacker != "none":
        raise InputError(
            f"{opt('attacker', experiment.attacker)}: on private images each node scores the final "
            f"encoder by itself, as {opt('attacker', 'none')} does"
        )
    if experiment.pretrain.mode != "none":
        raise InputError(f"{opt('pretrain.mode')}: the server of private images holds none")
    for name in ("query_budget", "sweep"):
        if (value := getattr(experiment, name)) is not None:
            raise InputError(f"{opt(name, value)}: a node scores without counting queries")
    if experiment.groups is not None:
        raise InputError(
            f"{opt('groups', experiment.groups)}: a node names no subject of its images"
        )
    if experiment.federation.placebo is True:
        raise InputError(f"{opt('federation.placebo', True)}: nodes hold no images to run it on")


def gives_guarantee(experiment: Experiment) -> bool:
    """Whether a defence or the server's rule promises privacy, which scores of images would void.

    Returns:
        True where nodes keep their scores unless they are told otherwise.
    """
    private = experiment.strategy.plugin("strategy").private
    return private or any(layer.plugin("defense").withholds for layer in experiment.defense)


def try_settings(experiment: Experiment) -> None:
    """Refuse a network, a method or a defence that suit no images, before a node is asked for its
    own: tried at the size that the settings give, else at a small and at a usual one.

    Raises:
        InputError: as `try_method` does.
    """
    *sizes, last = (experiment.data.size,) if experiment.data.size else (32, 224)
    for size in sizes:
        with contextlib.suppress(InputError):
            try_method(experiment, 3, size)
            return
    try_method(experiment, 3, last)


@functools.lru_cache(maxsize=1)  # a simulation's actors answer many messages of one run
def plan_own(settings: str, client: int, sources: tuple[str, ...]) -> tuple[Plan, ClientSetup]:
    """Prepare the run on one node: it sees the images of its own client alone.

    Args:
        settings: the settings as JSON.
        client: partition id of the client.
        sources: data sources of the node's own images.

    Returns:
        The run, and what its client shares with the others.

    Raises:
        InputError: images that cannot be read, of two shapes, in two sources, or too few.
    """
    experiment = read_experiment(settings)
    check(experiment)
    public = experiment.split.public
    sides = [_load(experiment, *pair) for pair in zip(SOURCES, sources, strict=False)]
    if (count := sum(map(len, sides[2:]))) < public:
        raise InputError(
            f"{opt('split.public', public)} images that no client holds are asked for, the node "
            f"has {count}: its --node-config names a source of them as public='folder:PATH'"
        )
    sides[2:] = [side[:public] for side in sides[2:]]
    shapes = {n: "x".join(map(str, s.shape[1:])) for n, s in zip(SOURCES, sides, strict=False)}
    if len(set(shapes.values())) > 1:
        raise InputError(", ".join(f"{name} are images of {s}" for name, s in shapes.items()))
    images = np.concatenate(sides)
    data = ImageSet(images, np.zeros(len(images), np.int64), "private images")
    plan = Plan(experiment, _cast(experiment, client, data, *map(len, sides[:2])), [], ENTROPY)
    return plan, remote_context(plan)


def read_experiment(settings: str) -> Experiment:
    """The run that a server's settings describe.

    Args:
        settings: the settings as JSON.

    Returns:
        The settings, each in its range.

    Raises:
        InputError: they are no JSON, or an option has no value that it takes.
    """
    try:
        tree = parse_json(settings)
    except ValueError as error:
        raise InputError(f"the server's settings cannot be read: {error}") from None
    return from_tree(Experiment, tree)


def remote_context(plan: Plan) -> ClientSetup:
    """The client setup of a run whose node keeps no file of images."""
    with tempfile.TemporaryDirectory(prefix="fedmia-") as folder:
        client_setup = make_client_setup(plan, Path(folder), Event())
        len(client_setup.images)  # opens the file, which stays open when its name is gone
    return client_setup


def plan_server(experiment: Experiment, channels: int, size: int) -> Plan:
    """Prepare the run on the server: it knows the shape of the images, and holds none.

    Args:
        channels: number of channels of an image.
        size: side of an image in pixels.

    Returns:
        A run without images.
    """
    empty = np.zeros(0, np.int64)
    data = ImageSet(np.zeros((0, channels, size, size), np.uint8), empty, "private images")
    parts = (empty,) * experiment.federation.clients
    return Plan(experiment, Cast.of_run(data, {}, parts), [], ENTROPY)


def _load(experiment: Experiment, side: str, source: str) -> np.ndarray:
    name, path = split_dataset(disk_path(source))
    request = replace(experiment.data.request(experiment.seed), path=path, data_dir=None)
    try:
        images: ImageSet = registry.build("dataset", name, {}).load(request)
    except InputError as error:
        raise InputError(f"{side}: {error}") from None
    return images.images


def _cast(experiment: Experiment, client: int, data: ImageSet, members: int, others: int) -> Cast:
    """Known and scored images of both sides, in an order that nobody else can draw; byte-equal ones
    once. What follows the sides is public."""
    clients, known, names = experiment.federation.clients, experiment.split.known, data.digests()
    stream = rng(root(ENTROPY, experiment.seed), "private")
    first = {name: at for at, name in reversed([*enumerate(names)])}
    *sides, public = np.split(np.arange(len(names)), [members, members + others])
    for one, other in itertools.combinations(zip(SOURCES, (*sides, public), strict=True), 2):
        both = {names[p] for p in one[1]} & {names[p] for p in other[1]}
        if both:
            raise InputError(f"{one[0]} and {other[0]} share {len(both)} byte-equal images")
    order = []
    for side, places in zip(SIDES, sides, strict=True):
        distinct = np.array([p for p in places if first[names[p]] == p], np.int64)
        if len(distinct) < known + 2:
            raise InputError(
                f"{len(distinct)} distinct {side} are too few: {opt('split.known', known)} are "
                "known, and at least 2 must remain to be scored"
            )
        order.append(stream.permutation(distinct))
    empty: IntArray = np.zeros(0, np.int64)
    mine = np.sort(order[0])
    return Cast.of_run(
        data,
        {
            "known_members": order[0][:known],
            "scored_members": order[0][known:],
            "known_nonmembers": order[1][:known],
            "scored_nonmembers": order[1][known:],
            "public": public,
        },
        parts=tuple(mine if c == client else empty for c in range(clients)),
        duplicates_removed=len(names) - len(first),
        distinct=len(first),
    )
