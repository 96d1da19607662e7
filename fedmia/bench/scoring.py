"""One attack on one target: the scores of its images, as an audit of the encoder gives them."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedmia.attacks.base import Attack, DatasetAttack
from fedmia.bench.targets import Images, NoLabels, Target
from fedmia.data.cast import KNOWN, Cast
from fedmia.data.images import digests, rank_digests
from fedmia.door.plugins import name_plugin
from fedmia.evaluation.active import ActiveScorer
from fedmia.evaluation.audits.climb import require_targets
from fedmia.evaluation.audits.prepare import load_encoder
from fedmia.evaluation.audits.shadows import OwnShadows
from fedmia.evaluation.encoder import audit_augmentation, suite_of_audit
from fedmia.recording.branches import MAIN
from fedmia.records import ScoredAttack
from fedmia.rounds.base import EncoderRounds
from fedmia.settings import registry, session
from fedmia.settings.commands.audit import (
    Audit,
    AuditedEncoder,
    AuditSplit,
    RecordedFederation,
    ShadowOptions,
)
from fedmia.settings.commands.machine import AuditMachine
from fedmia.settings.errors import InputError
from fedmia.settings.values import plain
from fedmia.storage.runfolder import RunFolder
from fedmia.threat.signals import Signals

Scores = NDArray[np.float64]
SEED = 0  # of an attack's own choices, in entries
# Bytes of drawn views that are kept while a target is scored, for its shadows, too: those of 6,500
# images of 32x32 with 24 views.
VIEW_BYTES = 1 << 31
BOTH, OTHERS, NOTHING = "both", "nonmembers", "nothing"  # what an attacker knows


@dataclass(frozen=True)
class Entrant:
    """An attack that takes part, as it is set up.

    Attributes:
        name: built-in, or `package.module:Class`.
        options: those that differ from their defaults.
        knows: `both` sides, `nonmembers` alone, or `nothing`, of an attack that learns no truth:
            it has the known images of both sides all the same, which some pool.
        shadows: encoders that it trains itself; 0 of an attack that reads none.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    knows: str = BOTH
    shadows: int = 0

    @classmethod
    def of(cls, attack: Any, knows: str = BOTH, shadows: int = 0) -> Entrant:
        """An attack as it takes part.

        Args:
            attack: its name, a class, an instance, or a mapping with its name and options.
            knows: `both` or `nonmembers`.
            shadows: encoders that it would train.

        Returns:
            The entrant; it knows `nothing` where it learns nothing of who is a member.

        Raises:
            InputError: it answers for whole data sets, or cannot do with what it is to know.
        """
        options = {one: plain(value) for one, value in name_plugin("attack", attack).items()}
        name = str(options.pop("name"))
        built: Attack = registry.build("attack", name, options)
        if isinstance(built, DatasetAttack):
            raise InputError(f"{name} answers for whole data sets; a bench asks of each image")
        if built.asks_shadows() and not shadows:
            raise InputError(f"{name} reads shadow encoders: shadows must be at least 1, got 0")
        if not built.learns:
            knows = NOTHING
        elif knows == OTHERS and built.learns_from_members:
            raise InputError(f"{name} learns from known members: knows must be '{BOTH}'")
        return cls(name, options, knows, shadows if built.asks_shadows() else 0)

    @property
    def key(self) -> str:
        """What sets its row apart from others of the same attack."""
        return self.knows + (f", {self.shadows} shadows" if self.shadows else "")

    @property
    def title(self) -> str:
        """Its name, as a folder is called."""
        return session.short_name(self.name).replace(":", ".")

    def source(self) -> bytes:
        """Its file, and of a built-in attack those of the package of attacks that it imports,
        directly or not, such as all that may be stacked; not `base`, the interface of all."""
        cls = registry.load("attack", self.name)
        if session.is_session_name(self.name):
            return session.source_of(cls).encode()
        files, waiting = list[Path](), [Path(inspect.getfile(cls))]
        while waiting:
            files.append(file := waiting.pop())
            if ":" not in self.name:
                waiting += [one for one in _imported(file) if one not in files + waiting]
        return b"".join(one.read_bytes() for one in [files[0], *sorted(files[1:])])

    def hash(self) -> str:
        """12 digits that change with its source and its options."""
        return hash_source(self.source(), self.options)


def describe_key(key: str) -> str:
    """What an attacker has, as users read it: `knows no truth, 4 shadows` of a key of entries."""
    return f"knows {key.replace(NOTHING, 'no truth')}"


def hash_source(source: bytes, options: Mapping[str, Any]) -> str:
    """12 digits that change with the source of an attack and with its options, which JSON holds."""
    text = json.dumps(options, sort_keys=True) if options else ""
    return hashlib.sha256(source + text.encode()).hexdigest()[:12]


def _imported(file: Path) -> list[Path]:
    """The files of the package of attacks that a file imports, but for the interface."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = [one.module or "" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)]
    own = {name for name in names if name.startswith("fedmia.attacks.")} - {Attack.__module__}
    return [file.with_name(f"{name.rpartition('.')[2]}.py") for name in sorted(own)]


@dataclass(frozen=True)
class TargetScores:
    """Scores of the images of one target; higher says member.

    Attributes:
        members: (n,) in the order of the target's roles.
        nonmembers: (m,) likewise.
        access: that the attack needs: `black_box` or `white_box`.
        vantage: `outsider`, `client` or `server`.
        queries: images that it had embedded.
        seconds: on a clock, for what no attack before it had computed; None: not stored, as
            others shared the work.
    """

    members: Scores
    nonmembers: Scores
    access: str
    vantage: str
    queries: int
    seconds: float | None


def _without_truth(split: Cast) -> Cast:
    """The known images dealt to the sides by their content, which says nothing of either."""
    places, n = np.concatenate([split.ids(role) for role in KNOWN]), len(split.ids(KNOWN[0]))
    places = places[rank_digests(digests(split.data.images[places]))]
    return replace(
        split, roles={**split.roles, **dict(zip(KNOWN, np.split(places, [n]), strict=True))}
    )


def open_target(
    entrants: Sequence[Entrant], target: Target, images: Images, seed: int = SEED,
    cache: Path | None = None,
) -> tuple[Audit, EncoderRounds, Cast, OwnShadows]:  # fmt: skip
    """A target as attacks meet it.

    Args:
        entrants: attacks of one key. Their shadows are trained by the recipe of the target, for as
            long; those of targets of one recipe that share the images of shadows are the same.
        target: the encoder and its images in their roles.
        images: at least the target's.
        seed: of the attack's own choices.
        cache: folder that keeps shadows.

    Returns:
        The audit of its encoder, its models, its images in their roles, and the attacker's own
        encoders, which are trained when first asked for.

    Raises:
        InputError: the target cannot be read.
    """
    federation = str(RunFolder(target.folder).recording) if target.federated else None
    shadows, knows = entrants[0].shadows, entrants[0].knows
    training = {"epochs": max(1, int(target.card["epochs"]))} if shadows else {}
    audit = Audit.complete(
        encoder=AuditedEncoder(name=str(target.folder)),
        federation=RecordedFederation(recording=federation),
        attacks=tuple(one.name for one in entrants),
        attack={one.name: one.options for one in entrants},
        split=AuditSplit(knows=OTHERS if knows == OTHERS else BOTH),
        shadow=ShadowOptions(count=shadows, training=training),
        machine=AuditMachine("cpu", torch.get_num_threads()),
        augment=target.views,
        seed=seed,
    )
    device = torch.device("cpu")
    rounds = load_encoder(audit, device)
    split = target.split(images, shadows > 0)
    if knows == NOTHING:
        split = _without_truth(split)
    own = OwnShadows(
        audit, rounds.encoder, split, cache, device, lambda line: None, lambda done, of: None,
        lambda: False,
    )  # fmt: skip
    return audit, rounds, split, own


def score_target(
    entrant: Entrant, target: Target, images: Images, seed: int = SEED, cache: Path | None = None
) -> TargetScores | str:
    """The scores of an attack on a target, or why it has none there.

    Args:
        entrant: the attack.
        target: the encoder and its images in their roles.
        images: at least the target's.
        seed: of the attack's own choices.
        cache: folder that keeps shadows.

    Returns:
        The scores, or a reason on one line.

    Raises:
        InputError: the target cannot be read.
    """
    return score_together([entrant], target, images, seed, cache)[0]


def score_together(
    entrants: Sequence[Entrant], target: Target, images: Images, seed: int = SEED,
    cache: Path | None = None,
) -> list[TargetScores | str]:  # fmt: skip
    """What `score_target` returns of each of several attacks, which share what they compute.

    Args:
        entrants: the attacks, none twice.
        target: the encoder and its images in their roles.
        images: at least the target's.
        seed: of the attacks' own choices.
        cache: folder that keeps shadows.

    Returns:
        Of each entrant its scores, or a reason on one line.

    Raises:
        InputError: the target cannot be read.
    """
    scores, outputs = dict[int, TargetScores | str](), dict[str, Signals]()
    for key in dict.fromkeys(one.key for one in entrants):
        group = [i for i, one in enumerate(entrants) if one.key == key]
        alike = [entrants[i] for i in group]
        results, outputs = _score_alike(alike, target, images, seed, cache, outputs)
        scores |= zip(group, results, strict=True)
    return [one for _, one in sorted(scores.items())]


def _score_alike(
    entrants: Sequence[Entrant], target: Target, images: Images, seed: int, cache: Path | None,
    outputs: dict[str, Signals],
) -> tuple[list[TargetScores | str], dict[str, Signals]]:  # fmt: skip
    """Those of attacks of one key; `outputs` that are known of shadows, by their keys, and of the
    target (""), and those that are known then."""
    audit, rounds, split, own = open_target(entrants, target, images, seed, cache)
    views = audit_augmentation(audit, own.augment(), split, of_run=True)
    shadows, device = own if audit.shadow.count else None, torch.device("cpu")
    suite = suite_of_audit(audit, rounds, split, device, shadows, augment=views)
    suite.attacker.pixels.limit = VIEW_BYTES
    suite.main.signals = outputs.pop("", suite.main.signals)
    own.signals.update(outputs)
    labels, results = split.labels, list[TargetScores | str]()
    assert isinstance(labels, NoLabels)
    for name in (one.name for one in entrants):
        scored, labels.queried = None, False  # until here an audit's own code asked
        if suite.able([name]):
            score = partial(
                suite.score, suite.main, name, suite.scorer.known, None, threshold=False
            )
            if suite.act is not None and name == suite.act.name:  # it took part in the rounds
                notes = rounds.notes
                assert notes is not None
                require_targets(notes, split.attacked())
                score = partial(ActiveScorer(suite, notes).score_branch, MAIN)
            scored = suite.failures.attempt("main", name, score)
        if labels.queried:
            results.append("reads the images' classes, which a bench gives to nobody")
        elif not isinstance(scored, ScoredAttack):
            results.append(suite.failures.reasons[name])
        else:
            members, others = (side.astype(np.float64) for side in scored.sides)
            how = scored.access, scored.vantage, scored.queries, scored.seconds
            results.append(TargetScores(members, others, *how))
    known = {"": suite.main.signals, **own.signals}
    return results, {key: rows.outputs() for key, rows in known.items()}
