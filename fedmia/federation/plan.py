"""The plan of a run, before its first round: its images and their roles, and what clients share."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import numpy as np

from clients.client_setup import ClientSetup, pixel_constants
from fedmia.attacks.base import ActiveAttack
from fedmia.data.cast import ATTACKED, NONE, Cast
from fedmia.data.decoding import UnreadableError
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet, IntArray, digests, rank_digests
from fedmia.data.sets import form_sets
from fedmia.data.survey import survey_sets
from fedmia.federation.schedule import Schedule
from fedmia.partitions.split import decode_split, make_split
from fedmia.partitions.subjects import COLUMN
from fedmia.records.note import Note
from fedmia.report.words.notes import in_words
from fedmia.runtime.device import resolve_device
from fedmia.seeding import SEEDED, torch_rng
from fedmia.settings.choices import Layer
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError, opt, prefix_errors
from fedmia.settings.registry import load
from fedmia.ssl.base import SSLMethod, TrainingData


@dataclass(frozen=True)
class Plan:
    """A run before its first round. Nothing of it is in the run folder yet.

    Attributes:
        experiment: the settings of the run.
        cast: the images with their labels, in their roles.
        notes: notes for the report.
        noise_source: SEEDED or ENTROPY: what clients and the server draw from.
    """

    experiment: Experiment
    cast: Cast
    notes: list[Note]
    noise_source: str = SEEDED

    def total_rounds(self) -> int:
        """Rounds over all branches."""
        schedule = Schedule(self.experiment)
        firsts = schedule.branches(bool(self.cast.placebo_parts)).values()
        return sum(schedule.last - first for first in firsts)


def make_plan(experiment: Experiment) -> Plan:
    """Load the data, and give every image its role.

    Raises:
        InputError: missing, empty or corrupt data, or too few images.
    """
    active = [n for n in experiment.attack if issubclass(load("attack", n), ActiveAttack)]
    if len(active) > 1:
        raise InputError(f"only one active attack can run inside one federation, got {active}")
    clients, malicious = experiment.federation.clients, len(experiment.malicious_clients)
    placebo = experiment.has_placebo
    deal, seed = experiment.partition.plugin("partition"), experiment.seed

    def roles(encoded: ImageSet | EncodedSet) -> Cast:
        return make_split(encoded, experiment.split, deal, clients, malicious, placebo, seed)

    source = experiment.data.source()
    columns = deal.wants() | ({} if experiment.groups is None else {COLUMN: experiment.groups})
    request = replace(experiment.data.request(seed), columns=columns)
    encoded = source.encoded(request)
    if encoded is None:
        split = roles(source.load(request))
    else:
        skip = experiment.data.skip_unreadable
        if not source.uniform:
            files = encoded
            surveyed = survey_sets({encoded.where: encoded}, skip, roles=lambda: roles(files))
            encoded = surveyed[encoded.where]
        if skip:
            encoded = encoded.drop_unreadable()
        try:
            split = decode_split(encoded, roles)
        except UnreadableError as error:
            raise error.way_out() from None
    foresee(experiment, split)
    received = Schedule(experiment).received(experiment.holder)
    split, data = replace(split, received=frozenset(received)), split.data
    notes = [*data.notes, *deal.notes(data, clients), *split_notes(split)]
    if not data.labelled:
        notes.append(Note("no-labels"))
    # Sizes, constants and pairs that do not suit are refused before anything is written.
    method, spec = try_method(experiment, data.channels, data.size), experiment.ssl.plugin("ssl")
    every = {n for size in set(map(len, split.parts)) for n in spec.notes(size)}
    sized = sorted(every, key=in_words)
    if len(sized) > 3:
        sized[3:] = [Note("more-of-this-kind", {"notes": len(sized) - 3})]
    notes[:0] = sized
    # A head may hold batch norm as well as the backbone, and of a plugin only the layers tell.
    running = any(".running_" in name for name in method.shared_state())
    if running and experiment.federation.batch_norm == "local":
        notes.append(Note("local-batch-norm"))
    return Plan(experiment, split, notes)


def try_method(experiment: Experiment, channels: int, size: int) -> SSLMethod:
    """The self-supervised method of a run on images of a shape, for which all suits.

    Args:
        channels: number of channels of an image.
        size: side of an image in pixels.

    Returns:
        The method, untrained.

    Raises:
        InputError: a network, a method, constants or a defence that do not suit.
    """
    backbone = experiment.model.plugin("model").build(channels, size)
    training_data = TrainingData(*pixel_constants(experiment, channels))
    spec, stream = experiment.ssl.plugin("ssl"), torch_rng(experiment.seed, "trial")
    method: SSLMethod = spec.build(backbone, training_data, stream)
    for layer in experiment.defense:
        with prefix_errors(opt("defense", layer.name)):
            layer.plugin("defense").check_method(method, channels, size)
    return method


def foresee(experiment: Experiment, split: Cast) -> None:
    """Refuse a defence that cannot keep its promise for a client of its size.

    Args:
        split: the images in their roles.

    Raises:
        InputError: naming the defence and the client's size.
    """
    for layer, sizes in defended_sizes(experiment, split):
        for size in sizes:
            try:
                layer.plugin("defense").foresee(
                    size, experiment.train, experiment.federation.rounds
                )
            except InputError as error:
                where = f"{opt('defense', layer.name)}, a client of {size} images"
                raise InputError(f"{where}: {error}") from None


def forecasts(plan: Plan) -> list[str]:
    """Which defences will guarantee nothing worth the name, by their settings alone.

    Args:
        plan: settings, images and their roles.

    Returns:
        One line for each such defence, for its smallest client.
    """
    experiment, lines = plan.experiment, list[str]()
    for layer, sizes in defended_sizes(experiment, plan.cast):
        for size in sizes[:1]:
            rounds = experiment.federation.rounds
            line = layer.plugin("defense").forecast(size, experiment.train, rounds)
            if line is not None:
                lines.append(f"{layer.name}: {line}")
    return lines


def defended_sizes(experiment: Experiment, split: Cast) -> Iterator[tuple[Layer, list[int]]]:
    """Each defence with the sizes of its clients that hold images, ascending."""
    for layer in experiment.defense:
        sizes = {len(split.parts[client]) for client in experiment.layer_client_ids(layer)}
        yield layer, sorted(sizes - {0})


def split_notes(split: Cast) -> list[Note]:
    """Notes about images that play no role."""
    notes = list[Note]()
    nobody = 0 if split.whose is None else int((split.whose < 0).sum())
    if nobody:
        notes.append(Note("images-of-nobody", {"images": nobody, "data": split.data.name}))
    if split.subjects is not None:
        notes += subject_notes(split)
    if split.duplicates_removed:
        notes.append(Note("duplicates-removed", {"images": split.duplicates_removed}))
    return notes


def subject_notes(split: Cast) -> list[Note]:
    """Notes on how many subjects play which role, and on those that several clients hold."""
    counts = [
        [(len(of), len(np.unique(of))) for of in split.subject_sides(kind) or ()]
        for kind in ("known", "scored")
    ]
    notes = [Note("subjects-drawn", {"known": counts[0], "scored": counts[1], "alone": None})]
    of = split.subjects[0] if split.subjects else NONE
    clients = Counter(one for part in split.parts[: split.honest] for one in np.unique(of[part]))
    if shared := sum(count > 1 for count in clients.values()):
        notes.append(Note("subjects-shared", {"subjects": shared}))
    return notes


def fingerprint(plan: Plan) -> str:
    """Digest of the images with a role, of all labels, and of who trains on which."""
    split, data = plan.cast, plan.cast.data
    digest = hashlib.sha256(data.images[np.sort(split.used)].data)
    for numbers in (data.labels, *split.parts, *split.placebo_parts):
        digest.update(numbers.astype("<i8").tobytes() + b"|")
    return digest.hexdigest()


def make_client_setup(plan: Plan, workdir: Path, stop: Event) -> ClientSetup:
    """Build what all clients share, and write the images to a file that every worker maps.

    Only images with a role are written, so the file of a large data source is mostly holes.

    Args:
        plan: settings, images and their roles.
        workdir: folder of the mapped images.
        stop: set when the user interrupts the run.

    Returns:
        What all clients share.
    """
    experiment, data, split = plan.experiment, plan.cast.data, plan.cast
    file, used = workdir / "images.npy", np.sort(split.used)
    mapped = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=data.images.shape)
    mapped[used] = data.images[used]
    mapped.flush()
    honest, malicious = len(experiment.honest_clients), len(experiment.malicious_clients)
    clients = honest + malicious
    own = split.parts[honest:]
    candidates = np.concatenate([split.ids(role) for role in ATTACKED])
    known = split.ids("known_members"), split.ids("known_nonmembers")
    names = [digests(data.images[at : at + 1])[0] for at in candidates]
    targets = candidates[rank_digests(names)]
    active, attack = experiment.active_attack, None
    if active is not None:
        attack = experiment.attack_choices[active].build("attack")
    return ClientSetup(
        experiment=experiment,
        image_array=file,
        roles=("honest",) * honest + (experiment.attacker,) * malicious,
        parts={"members": split.parts, "placebo": (*split.placebo_parts, *own)},
        held=np.concatenate([*own[:1], *known]),
        known=known,
        targets=targets,
        sets=target_sets(split, targets, experiment.seed),
        public=split.ids("public"),
        attack=attack,
        share=1 / max(1, int(clients * experiment.federation.participation + 0.5)),
        turns=max(1, int(experiment.attack_rounds * experiment.federation.participation + 0.5)),
        channels=data.channels,
        size=data.size,
        device=resolve_device(experiment.machine.device),
        noise_source=plan.noise_source,
        stop=stop,
    )


def target_sets(split: Cast, targets: IntArray, seed: int) -> tuple[IntArray, ...]:
    """Positions in `targets` of each scored set, in an order that tells nothing of membership.

    Args:
        split: the images in their roles.
        targets: indices of the images that an active attack acts on, in an order of content.
        seed: root of all random streams of the run.

    Returns:
        One index array for each set.
    """
    scored = split.ids("scored_members"), split.ids("scored_nonmembers")
    ours, theirs = form_sets(len(scored[0]), len(scored[1]), seed)
    images = [*scored[0][ours], *scored[1][theirs]]
    place = {image: at for at, image in enumerate(targets.tolist())}
    rows = [np.sort([place[i] for i in one.tolist()]) for one in images]
    return tuple(sorted(rows, key=lambda one: int(one[0])))


def divergence_hint(experiment: Experiment) -> str:
    """What helps where training diverged, with the values in force.

    Returns:
        `a lower train.lr=0.03 helps`, with all else that may be the cause.
    """
    rates = {"strategy.server_lr": experiment.strategy.options.get("server_lr", 1.0)}
    rates |= {"train.lr": experiment.train.first_rate}
    helps = [f"a lower {opt(path, f'{rate:g}')}" for path, rate in rates.items() if rate != 1]
    helps += ["a weaker defence"] * bool(experiment.defense)
    helps += ["a milder attack"] * (experiment.active_attack is not None)
    return f"{' or '.join(helps)} helps"
