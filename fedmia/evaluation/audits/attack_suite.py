"""Every attack on one released encoder, and on the controls beside it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, DatasetAttack, Known
from fedmia.config.audit import Audit
from fedmia.config.audit_attacks import expand_names, outside_reason
from fedmia.config.roles import QUICK
from fedmia.data.cast import KNOWN, SCORED, Cast
from fedmia.data.images import IntArray
from fedmia.encoders.base import LoadedEncoder
from fedmia.evaluation.audits.resume import key
from fedmia.evaluation.audits.shadows import OwnShadows
from fedmia.evaluation.steps.budgets import allot
from fedmia.evaluation.steps.datasets import Partition
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.evaluation.steps.suite import AttackSuite
from fedmia.options import registry
from fedmia.options.errors import InputError
from fedmia.options.option import option_fields
from fedmia.options.seeding import rng
from fedmia.probes.utility import NO_PROBES, mean_cosine, probe
from fedmia.records import DatasetInferenceResults, Health, Probe, ScoredAttack, list_attacks
from fedmia.records.rows import BROKEN
from fedmia.shadows.train import CUT, TrainingStopped
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod
from fedmia.statistics.matching import effective_size
from fedmia.statistics.subjects import halves
from fedmia.storage.archive import Archive
from fedmia.threat import (
    BlackBox,
    BudgetError,
    Meter,
    Shadow,
    StoredVectors,
    Threat,
    WhiteBox,
    require,
    require_shadows,
)
from fedmia.threat.signals import PixelCache, Signals

RELEASED, UNTRAINED = "released", "untrained"  # the encoder itself and the control
VIEWS = {"black_box": BlackBox, "white_box": WhiteBox}
ShowProgress = Callable[[str, str, bool], None]  # (model, attack, finished)


class EncoderAttackSuite(AttackSuite[str]):
    """Runs attacks on one encoder (RELEASED) and on its untrained control (UNTRAINED).

    Attributes:
        audit: the audit's settings.
        released: the encoder under audit.
        audit_split: the images in their roles.
        augment: recipe of the attacker's views.
        device: where tensors are computed.
        shadows: the attacker's own encoders; None: it has none.
        every_known: images that could be known; `--knows` may keep the members from the attacker.
        folder: of what was scored before and of what is scored now, or None.
        scores: of the attacks on the encoder. controls: the same on the control.
        inferences: of the scored members as one data set.
    """

    def __init__(
        self, audit: Audit, released: LoadedEncoder, audit_split: Cast, augment: Augment,
        device: torch.device, shadows: OwnShadows | None = None, folder: Path | None = None,
    ) -> None:  # fmt: skip
        self.audit, self.released, self.audit_split = audit, released, audit_split
        self.augment, self.device, self.shadows = augment, device, shadows
        of, (members, others) = audit_split.subject_sides, map(audit_split.pixels, SCORED)
        known = Known(*map(audit_split.pixels, KNOWN), subjects=of("known"))
        self.every_known = known
        if audit.knows == "nonmembers":
            known = known.without_members()
        stored = released.stored
        super().__init__(
            audit.attack if stored is None else limit_views(audit, stored.views),
            Scorer(known, members, others, audit.seed, self.build, subjects=of("scored")),
            Failures((), (InputError, BudgetError, TrainingStopped)),
            Archive(folder, key(audit, released, audit_split, augment, device)),
            audit.query_budget,
        )
        if audit.knows == "nonmembers":
            self.notes.append("The attacker knows non-members alone: none chooses a threshold.")
        self.held, self.pixels = self.holds(known), PixelCache()
        self._signals: dict[str, Signals] = defaultdict(Signals)
        self._methods: dict[str, SSLMethod] = {}
        self.scores = list[ScoredAttack]()
        self.controls = list[ScoredAttack]()
        self.inferences = list[DatasetInferenceResults]()

    # -- views: rows and drawn images are shared between them, counts are not -------------------

    def method(self, model: str) -> SSLMethod:
        """The encoder or its control, with a queue of the attacker's images."""
        if model not in self._methods:
            method = self.build_method(model)
            method.to(self.device).eval()
            if self.released.access == "white_box":  # losses alone read the queue: no query else
                own = self.audit_split.own
                method.fill_bank(self.held if own is None else own)
            self._methods[model] = method
        return self._methods[model]

    def build_method(self, model: str) -> SSLMethod:
        """The encoder or its control, with any queue."""
        return self.released.untrained() if model == UNTRAINED else self.released.method

    def vantage(self, name: str) -> tuple[Callable[..., BlackBox], Threat, dict[str, Any]]:
        """The view that attack `name` gets, what it grants, and what it has beside the encoder."""
        make: Callable[..., BlackBox] = VIEWS[self.released.access]
        stored = self.released.stored
        if stored is not None:
            make = partial(StoredVectors, stored=stored)
        return make, Threat(self.released.access, "outsider"), {}

    def view(
        self, model: str, name: str, known: Known, budget: int | None, *, naive: bool = False
    ) -> BlackBox:
        """What the attacker that knows `known` holds of `model` while attack `name` runs.

        Args:
            naive: it does not know the defence of the target's training.
        """
        shadows: Sequence[Shadow] = ()
        if self.shadows is not None and self.build(name).asks_shadows():
            shadows = self.shadows.make(self.held, self.augment, self.pixels, naive=naive)
        make, _, beside = self.vantage(name)
        return make(
            held=self.holds(known),
            pixels=self.pixels,
            shadows=shadows,
            labels=self.audit_split.labels,
            meter=Meter(budget),
            **self._shared(model),
            **beside,
        )

    def holds(self, known: Known) -> Tensor:
        """The images that the attacker holds: its own and the known ones."""
        own, images = self.audit_split.own, known.both()[0]
        return images if own is None else torch.cat([own, images])

    def plain_view(self, model: str) -> BlackBox:
        """A view of `model` that charges no attack, and leaves no rows of one side behind: an
        attack would be answered faster about these."""
        return BlackBox(**self._shared(model) | {"signals": Signals()})

    def _shared(self, model: str) -> dict[str, Any]:
        return {
            "method": self.method(model),
            "augment": self.augment,
            "seed": self.audit.seed,
            "device": self.device,
            "signals": self._signals[model],
            "precision": self.audit.precision,
        }

    def decides(self, name: str) -> str:
        """Digest of an attack's options, of the files that they name and of its shadows' files.

        Raises:
            InputError: the shadows' files cannot be read.
        """
        attack = self.build(name)
        options = [getattr(attack, f.name) for f, _ in option_fields(type(attack))]
        files = [Path(v) for v in options if isinstance(v, str) and Path(v).is_file()]
        contents = [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]
        own = self.shadows.digest() if self.shadows and attack.asks_shadows() else ""
        return " ".join([repr(attack), *contents]) + own

    # -- attacks -------------------------------------------------------------------------------

    def refusal(self, name: str) -> str | None:
        """Why attack `name` has no place here, or None."""
        return outside_reason(name)

    def able(self) -> list[str]:
        """The attacks that the attacker holds enough for; the reasons of the others are noted."""
        attempt = partial(self.failures.attempt, "main")
        return [n for n in self.audit.attacks if attempt(n, partial(self.check, n)) is not None]

    def controlled(self, names: Sequence[str]) -> list[str]:
        """Of some attacks those that run on the untrained control, too."""
        built = {name: self.build(name) for name in names}
        return [
            name
            for name, attack in built.items()
            if not (isinstance(attack, DatasetAttack) or attack.reads_training())
        ]

    def others(self) -> list[str]:
        """Attacks that could run and are not asked for, where all quick ones are."""
        left = [n for n in registry.names("attack") if n not in self.audit.attacks]
        chosen = any(n in left for n in expand_names((QUICK,)))
        return [] if chosen else [n for n in left if self._could_run(n)]

    def _could_run(self, name: str) -> bool:
        try:
            return self.check(name) is not None
        except (InputError, BudgetError):
            return False

    def check(self, name: str) -> Attack:
        """The attack.

        Raises:
            InputError: the audit's access or its lack of shadows does not grant what it needs.
        """
        if (reason := self.refusal(name)) is not None:
            raise InputError(reason)
        attack = self.build(name)
        require(self.vantage(name)[1], attack.needs)
        if attack.asks_shadows():
            require_shadows(self.shadows is not None)
        return attack

    def run(
        self, names: Sequence[str], show_progress: ShowProgress, stopped: Callable[[], bool],
        ran: Callable[[int], None], controls: bool = True,
    ) -> None:  # fmt: skip
        """Score attacks on the encoder and then on its untrained control.

        Args:
            names: of the attacks.
            show_progress: called before and after each attack with the model, the attack's name
                and whether it is done.
            stopped: whether the user asked to stop.
            ran: called with the number of attacks that run again on the control.
            controls: whether the control is attacked.
        """
        for name in names:
            if stopped():
                self.failures.reasons[name] = CUT
                continue
            show_progress(RELEASED, name, False)
            scored = self.failures.attempt("main", name, partial(self.score_encoder, name))
            if isinstance(scored, DatasetInferenceResults):
                self.inferences.append(scored)
            elif scored is not None:
                self.scores.append(scored)
            show_progress(RELEASED, name, True)
        missing = self.no_control_reason if self.scores else None
        again = self.controlled([s.name for s in self.scores])
        ran(0 if missing else len(again))
        if missing is not None:
            rest = "nothing" if self.released.stored is not None else "the classifier on pixels"
            self.notes.append(f"{missing}; what remains as a control is {rest}.")
        for name in again if controls else ():
            if missing is not None or stopped():
                break
            show_progress(UNTRAINED, name, False)
            control = self.failures.attempt(
                UNTRAINED, name, partial(self.score_once, UNTRAINED, name)
            )
            self.controls += [] if control is None else [control]
            show_progress(UNTRAINED, name, True)
        for (name, _), why in self.failures.beside.items():
            how = f": {why}".replace(f": {BROKEN}", ", it failed there: ", 1)
            self.notes.append(f"{name} has no untrained control{how}")
        self.scores, self.controls = list_attacks(self.scores), list_attacks(self.controls)

    @cached_property
    def no_control_reason(self) -> str | None:
        """Why there is no untrained control, or None where there is one; it is asked for once."""
        try:
            self.method(UNTRAINED)
        except InputError as error:
            return str(error)
        return None

    def score_encoder(self, name: str) -> ScoredAttack | DatasetInferenceResults:
        """Score one attack on the encoder.

        Raises:
            BudgetError: its budget of queries does not suffice.
        """
        if isinstance(self.build(name), DatasetAttack):
            models = [RELEASED] + [UNTRAINED] * (self.no_control_reason is None)
            views = [self.view(m, name, self.scorer.known, None) for m in models]
            classes = self.audit_split.classes(SCORED[0]), self.audit_split.classes(SCORED[1])
            return self.infer(name, classes, *self.clients(), views)
        allot(self, RELEASED, name)
        return self.score_once(RELEASED, name)

    def score_once(self, model: str, name: str) -> ScoredAttack:
        """Score one attack on `released` or `untrained`, or take its scores from the archive."""
        return self.once(model, name, partial(self.score_model, model, name))

    def score_model(self, model: str, name: str) -> ScoredAttack:
        """Score one attack on `released` or `untrained`, beside its naive twin where it has one.

        Args:
            model: `released` or `untrained`.
            name: of the attack.

        Returns:
            The scores.
        """
        known, budget = self.known[name], self.budget
        if model == UNTRAINED:
            return self.score(model, name, known, budget, rounds=(), threshold=False)
        turn, shadows = self.released.weights.round, self.shadows
        rounds = () if turn is None else (turn,)
        scored = self.score(model, name, known, budget, rounds=rounds)
        if shadows is None or not (self.build(name).asks_shadows() and shadows.paired()):
            return scored
        view = self.view(model, name, known, budget, naive=True)
        naive = self.scorer.with_known(known).score_attack(name, view, threshold=False)
        return replace(
            scored,
            twins={f"{name}-naive": "the same with shadows trained without the defence"},
            twin_members=naive.scores_members[:, None],
            twin_nonmembers=naive.scores_nonmembers[:, None],
        )

    def clients(self) -> tuple[IntArray, Partition]:
        """The client of each scored member (n,), and how posers are dealt: one data set here, or
        one of each subject."""
        subjects = self.audit_split.subject("scored_members")
        if subjects is not None:
            return subjects, whole
        return np.zeros(len(self.audit_split.ids("scored_members")), dtype=np.int64), whole

    def run_rounds(self, say: Callable[[str], None], stopped: Callable[[], bool]) -> dict[str, Any]:
        """Fields of `RunScores` for the rounds and clients of a federation; an encoder has none."""
        return {}

    # -- what the encoder is good for ----------------------------------------------------------

    def probes(self, model: str) -> dict[str, Probe]:
        """kNN and linear probe: fitted on half of the scored non-members, tested on the other half.

        Without two classes among the labels neither can run.
        """
        labels = self.audit_split.classes("scored_nonmembers")
        own = self.audit_split.subject("scored_nonmembers")
        of = np.arange(len(labels)) if own is None else own
        fit, test = halves(of, rng(self.audit.seed, "probes"))
        if len(fit) < 2 or len(np.unique(labels[fit])) < 2:
            return NO_PROBES
        rows = self.plain_view(model).embed_plain(
            self.audit_split.pixels("scored_nonmembers"), "avgpool"
        )
        classes = torch.from_numpy(labels)
        probes = probe(rows[fit], classes[fit], rows[test], classes[test])
        if own is None:
            return probes
        shares = np.unique(of[test], return_counts=True)[1] / len(test)
        return {n: replace(one, trials=effective_size(shares)) for n, one in probes.items()}

    def health(self) -> Health | None:
        """How alike the encoder's outputs are for different scored non-members.

        None where there are fewer than two. The encoder's loss is not known.
        """
        images = self.audit_split.pixels("scored_nonmembers")
        if len(images) < 2:
            return None
        return Health(mean_cosine(self.plain_view(RELEASED).embed_plain(images)))


def limit_views(audit: Audit, most: int) -> dict[str, Mapping[str, Any]]:
    """Options of the attacks where a file has the views: those that leave their number open read
    all.

    Args:
        most: views of each image in the file.

    Returns:
        Options by attack.
    """
    options: dict[str, Mapping[str, Any]] = {**audit.attack}
    for name in audit.attacks:
        views = vars(registry.build("attack", name, options.get(name, {}))).get("views", 0)
        if views > most > 1 and "views" not in options.get(name, {}):
            options[name] = {**options.get(name, {}), "views": most}
    return options


def whole(labels: IntArray, clients: int, draw: np.random.Generator) -> list[IntArray]:
    """The partition of an audit: its members are one data set, one part with all positions."""
    return [np.arange(len(labels))]
