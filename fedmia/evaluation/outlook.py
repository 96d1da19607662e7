"""`--plan`: what a command would do, by pilots on few of its images: seconds, queries, and the
smallest leak that its images would show. Here of audits, and what all plans share."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from operator import attrgetter
from threading import Event
from typing import Any

import numpy as np
import torch

from fedmia.cli.command import Invocation
from fedmia.data.cast import KNOWN, SCORED, Cast
from fedmia.evaluation.audits.prepare import device_of, prepare
from fedmia.evaluation.audits.shadows import OwnShadows
from fedmia.evaluation.audits.threads import settle_threads
from fedmia.evaluation.encoder import examine, suite_of_audit
from fedmia.evaluation.steps.failures import rarest_reason
from fedmia.evaluation.subject_outlook import foresee, pick_subjects, score_sets
from fedmia.records import Evaluation, ScoredAttack
from fedmia.records.attack_rows import with_auc
from fedmia.report.build import build_report
from fedmia.report.codes import UNTESTED
from fedmia.report.publish import json_text
from fedmia.report.reach import leak_tests
from fedmia.report.words import plan as words
from fedmia.report.words.attacks import not_run_line
from fedmia.report.words.bounds import defended_lines
from fedmia.report.words.notes import in_words, sentences
from fedmia.runtime.cores import count_cores
from fedmia.runtime.forecast import cost_of, makespan
from fedmia.runtime.heartbeat import format_seconds
from fedmia.runtime.load import BUSY, measure_free_cores
from fedmia.runtime.memory import SLACK, Watermark, foresee_phase, foresee_phases, megabytes
from fedmia.runtime.progress import AuditDisplay
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.seeding import rng
from fedmia.settings import registry
from fedmia.settings.commands.audit import Audit
from fedmia.settings.errors import InputError, opt
from fedmia.statistics.power import images_needed, smallest_detectable_auc
from fedmia.storage.outfolder import OutFolder

SHARE, LEAST = 0.1, 16  # of the scored images in a pilot, and the fewest of a side
EPOCHS = 2  # of each shadow of a pilot
FIGURES = 120_000_000  # bytes of what draws them, of which a pilot draws none
Outlook = dict[str, Any]  # as `--plan --json` prints it


def pick(count: int) -> np.ndarray:
    """Positions of the images of a pilot among `count`."""
    return np.sort(rng(0, "pilot").permutation(count)[: max(LEAST, round(SHARE * count))])


def of_all(attack: ScoredAttack, name: str, images: int) -> float:
    """The seconds or queries of an attack of a pilot for all images, by those of its scoring.

    Args:
        attack: of the pilot, fitted on all known images.
        name: `seconds` or `queries`.
        images: that are scored in all.

    Returns:
        The number.
    """
    cost, scoring = getattr(attack, name), getattr(attack, f"scoring_{name}")
    return cost_of(images, scoring, sum(map(len, attack.sides)), once=cost - scoring)


def of_attacks(
    pilot: Evaluation, took: float, names: Collection[str], images: int,
    controls: Sequence[str], rounds: int = 0, workers: int = 1,
) -> float:  # fmt: skip
    """Seconds of the attacks on all models, by those of a pilot on one.

    Args:
        pilot: its scores.
        took: its seconds; what no attack takes is paid once.
        names: of the attacks; readings beside them take no time of their own.
        images: that are scored in all.
        controls: models that attacks run on, too; on `untrained` those that read no training.
        rounds: other rounds whose models the attacks by round run on.
        workers: models that are attacked side by side.

    Returns:
        The seconds.
    """
    seconds, ran = dict[str | int, float](), [one for one in pilot.attacks if one.name in names]
    for one in ran:
        kind = registry.load("attack", one.name)
        on = [c for c in controls if c != "untrained" or not kind.reads_training()]
        for model in ["main", *on, *range(rounds * kind.by_round)]:
            seconds[model] = seconds.get(model, 0.0) + of_all(one, "seconds", images)
    once = max(took - sum(one.seconds for one in ran), 0.0)
    return once + makespan(seconds.values(), workers)


def conclude(
    invocation: Invocation, watch: Stopwatch, pilot: Evaluation, seconds: Mapping[str, float],
    **row: Any,
) -> Outlook:  # fmt: skip
    """The outlook, by the attacks of a pilot and by the tests of its report.

    Args:
        invocation: what the user asked for.
        watch: timed the imports and the data of the command.
        pilot: its scores; an attack stands for itself under the control.
        seconds: of the command by part, from then to the report.
        row: the other keys.

    Returns:
        The outlook.
    """
    report, leak, images = build_report(pilot), invocation.leak, row["images"]
    sides = images["scored_members"], images["scored_nonmembers"]
    tests = leak_tests(report, with_auc(report.attacks))
    parts = {name: watch.seconds[name] for name in ("import", "data")} | {**seconds}
    # Figures take about as long to draw as all imports.
    parts["report"] = 0.0 if invocation.out is None else parts["import"]
    total, busy = sum(parts.values()), measure_free_cores() < BUSY * count_cores()
    cpu = time.process_time() / watch.timing()["total_s"]  # an idle machine gives a whole core
    return {
        **row,
        "lines": [*row["lines"], *defended_lines(report)],
        "queries": {a.name: round(of_all(a, "queries", sum(sides))) for a in pilot.attacks},
        "not_run": dict(report.not_run),
        "seconds": {**parts, "total": total},
        "seconds_idle": total * min(cpu, 1.0) if busy and "images_sent" not in row else total,
        "tests": report.family.intervals * (report.verdict_code != UNTESTED),
        "smallest_auc": smallest_detectable_auc(*sides, **tests),
        "leak": leak,
        "images_needed": leak and images_needed(leak, **tests),
        "images_available": min(sides[0], sides[1] + images.get("spare_nonmembers", 0)),
    }


class _Clock(AuditDisplay):
    """Silent; notes when the epochs of the shadows ended."""

    def __init__(self, memory: Watermark) -> None:
        super().__init__(0, True, in_words)
        self.stamps, self.memory = list[float](), memory

    def epochs(self, done: int, total: int) -> None:
        self.stamps.append(time.perf_counter())
        self.memory.enter("shadows" if done < total else "attacks")

    def shadows(self) -> float:
        """Seconds of all epochs: the first ended when the others began."""
        if len(self.stamps) < 2:
            return 0.0
        return cost_of(len(self.stamps), self.stamps[-1] - self.stamps[0], len(self.stamps) - 1)


def plan_audit(invocation: Invocation, watch: Stopwatch, stop: Event) -> Outlook:
    """What an audit would do; nothing is written.

    Args:
        invocation: what the user asked for; its settings are an `Audit`.
        watch: timed the command so far.
        stop: set when the user interrupts.

    Returns:
        The outlook.

    Raises:
        InputError: bad input, an audit that cannot be planned, or one of which no attack can run.
        KeyboardInterrupt: the user ended it.
    """
    memory = Watermark()
    audit: Audit = settle_threads(invocation.settings, None, lambda line: None)
    whole = ("federation.recording", "sweep")
    refuse(audit, *whole, *["encoder.checkpoint"] * audit.of_rounds)
    torch.set_num_threads(audit.machine.threads or count_cores())
    device = device_of(audit)
    with watch.part("data"):
        rounds, split = prepare(audit, device)
    counts, epochs = split.counts(), audit.plan().epochs
    images = {k: v for k, v in counts.items() if isinstance(v, int) and "_" in k}
    scored = images["scored_members"] + images["scored_nonmembers"]
    few = split.only({role: _pick_role(split, role) for role in SCORED})
    training = dict(audit.shadow.training)
    if audit.shadow.count:
        training["epochs"] = min(EPOCHS, epochs)
    short = replace(audit, shadow=replace(audit.shadow, cache=None, training=training))
    timer, clock, place = Stopwatch(time.perf_counter()), _Clock(memory), OutFolder(None, "")
    with closing(memory):
        memory.enter("attacks")
        pilot = examine(
            short, rounds, few, device, place, clock, timer, stop.is_set, controls=False
        )
        memory.enter("report")
        if pilot.attacks:
            build_report(pilot)
    if stop.is_set():
        raise KeyboardInterrupt
    if not (pilot.attacks or pilot.inferences):
        raise InputError(f"no attack could run; {': '.join(rarest_reason(pilot.not_run))}")
    took, controls = timer.timing(), ["untrained"] * bool(pilot.utility_untrained)
    alone = took["attacks"] - clock.shadows()
    seconds = {
        "shadows": cost_of(epochs, clock.shadows(), min(EPOCHS, epochs)),
        "attacks": of_attacks(pilot, alone, audit.attacks, scored, controls),
        "probes": took["probes"],
    }
    row: Outlook = {"lines": sentences([*rounds.encoder.notes, *split.notes]), "images": images}
    own = OwnShadows(
        short, rounds.encoder, few, None, device, lambda line: None, lambda done, total: None,
        stop.is_set,
    )  # fmt: skip
    scored_here = sum(len(few.ids(role)) for role in SCORED)
    takes = own.training_bytes() if "shadows" in memory.added else {}
    row["memory"] = foresee_memory(
        memory, audit, split, scored_here, takes, invocation.out is not None, device
    )
    if (remote := rounds.encoder.remote) is not None:  # of the known images it was sent all
        row["images_sent"] = round(cost_of(len(split.attacked()), remote.sent, len(few.attacked())))
        row["images_sent_for_the_plan"] = remote.sent
    pilot = replace(pilot, controls=dict.fromkeys(controls, pilot.attacks))
    if split.subjects is None:
        return conclude(invocation, watch, pilot, seconds, **row)
    suite = suite_of_audit(short, rounds, few, device)
    sets, spent = score_sets(suite, [one.attack for one in pilot.inferences])
    rest = scored - scored_here
    seconds["attacks"] += (1 + len(controls)) * cost_of(rest, spent, scored - rest)
    outlook = conclude(invocation, watch, pilot, seconds, **row)
    return outlook | foresee(pilot, split, sets, invocation.leak)


def grow(cast: Cast, few: int) -> float:
    """How many times as many images attacks have in all as in a pilot, which has all known ones.

    Args:
        cast: all images.
        few: scored ones of the pilot.

    Returns:
        The factor, at least 1.
    """
    scored, known = (sum(len(cast.ids(role)) for role in roles) for roles in (SCORED, KNOWN))
    return (scored + known) / max(1, few + known)


def foresee_memory(
    memory: Watermark, audit: Audit, cast: Cast, few: int, one: Mapping[str, int], drawn: bool,
    device: torch.device,
) -> dict[str, Any]:  # fmt: skip
    """What an audit will have in memory, by the rule of `fedmia.runtime.memory`.

    Measured in the pilot: the encoder, the training of the shadows, which are as many and as large
    as in the audit, and what attacks and the report add, which grows with the images. Counted: the
    shadows at work and as they stay, the figures, and what the allocator keeps.

    Args:
        memory: watched the pilot.
        audit: the audit's settings.
        cast: all images in their roles.
        few: how many were scored in the pilot.
        one: bytes of a shadow in training, by part; empty where none is trained.
        drawn: whether figures are drawn.
        device: where tensors are computed.

    Returns:
        As `fedmia.runtime.memory.foresee_phases`; with shadows `one_shadow_mb` by part, and
        `shadows_at_work`.
    """
    growth, count = grow(cast, few), audit.shadow.count if one else 0
    at_work = min(count, count_cores() if device.type == "cpu" else 1)
    staying = count * sum(one.get(n, 0) for n in ("weights", "momentum_encoder", "bank", "images"))
    sides = {id(side): side.images.nbytes for side in cast.sides}
    base = {"program": memory.start, "images": sum(sides.values())}
    after, figures = base | {"shadows": staying}, {"figures": FIGURES * drawn}
    added = max(0, memory.added["attacks"] - staying)  # their number does not grow
    phases = {
        "attacks": foresee_phase(memory.starts["attacks"], added, base, after, growth),
        "report": foresee_phase(
            memory.starts["report"], memory.added["report"], after, after | figures, growth
        ),
    }
    if one:
        counted = after | {"shadows at work": at_work * sum(one.values())}
        measured = memory.starts["shadows"], memory.added["shadows"]
        parts = foresee_phase(*measured, counted, counted)
        slack = SLACK * (sum(parts.values()) - sum(base.values()))
        phases["shadows"] = parts | {"freed": slack}
    lowers = {
        "images": "split.limit",
        "more images": "split.limit",
        "shadows": "shadow.count",
        "shadows at work": "shadow.batch_size",
    }
    about = {"one_shadow_mb": megabytes(one), "shadows_at_work": at_work} if one else {}
    return {**foresee_phases(phases, lowers), **about, "card": device.type != "cpu"}


def _pick_role(cast: Cast, role: str) -> np.ndarray:
    """Positions of the images of a role that a pilot scores."""
    subjects, count = cast.subject(role), len(cast.ids(role))
    if subjects is None:
        return pick(count)
    return pick_subjects(subjects, max(LEAST, round(SHARE * count)))


def refuse(settings: Any, *names: str) -> None:
    """Refuse to plan what uses one of these options.

    Raises:
        InputError: it is used.
    """
    for name in names:
        if (value := attrgetter(name)(settings)) is not None:
            raise InputError(f"--plan does not go with {opt(name, value)}: leave one out")


def describe(row: Outlook) -> list[str]:
    """The outlook as lines of text."""
    lines = list(row["lines"])
    for what in ("images", "queries"):
        listed = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in row[what].items())
        lines += [f"{what}: {listed}"] if listed else []
    if "images_sent" in row:
        plan = f"{row['images_sent_for_the_plan']:,} for this plan"
        lines.append(f"images for the API: {row['images_sent']:,}, each sent once ({plan})")
    reasons: dict[str, list[str]] = {}
    for name, why in row["not_run"].items():
        reasons.setdefault(why, []).append(name)
    lines += [not_run_line(", ".join(names), why) for why, names in reasons.items()]
    *took, (_, whole) = row["seconds"].items()
    parts = [f"{name} {format_seconds(seconds)}" for name, seconds in took if seconds >= 0.5]
    total = f"total {format_seconds(whole)}"
    lines.append(f"time on this machine: {total} ({', '.join(parts)})")
    lines += words.memory(row["memory"])
    if row["seconds_idle"] < row["seconds"]["total"]:
        idle = format_seconds(row["seconds_idle"])
        lines.append(f"other programs keep the machine busy: on an idle one about {idle}")
    if not row["tests"]:
        return [*lines, words.NOTHING_TESTED]
    if "subjects" in row:
        return [*lines, *words.of_subjects(row)]
    lines.append(words.smallest_leak(row["smallest_auc"], row["tests"]))
    if (leak := row["leak"]) is not None:
        needed, have = row["images_needed"], row["images_available"]
        lines.append(words.images_needed(leak, needed, have))
    return lines


def show(invocation: Invocation, row: Outlook) -> int:
    """Print the outlook, as JSON where that is asked for; the exit code 0."""
    text = json_text(row) if invocation.json else "\n".join([*describe(row), ""])
    print(text, end="")
    return 0
