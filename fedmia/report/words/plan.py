"""What a plan foresees, in words: the leak that would show, the images that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmia.report.words.numbers import format_p, number
from fedmia.settings.errors import opt

NOTHING_TESTED = "nothing would be tested: no attack would have scores"


def smallest_leak(auc: float | None, tests: int) -> str:
    """The smallest leak that the images would show; None: not even a perfect attack."""
    text = "not even a perfect attack" if auc is None else f"AUC {number(auc, 3)} in 80 of 100 runs"
    return f"smallest leak that would show: {text} (tests: {tests})"


def images_needed(leak: float, needed: int | None, available: int) -> str:
    """Whether the images are enough to show a leak.

    Args:
        leak: its AUC.
        needed: members, and as many others; None: more than can be counted.
        available: of each side.

    Returns:
        The line.
    """
    count = "more than ten million" if needed is None else f"{needed:,}"
    enough = "are too few" if needed is None or available < needed else "are enough"
    return (
        f"a leak of AUC {leak:g} needs {count} scored members and as many others; "
        f"the {available:,} of each that can be scored {enough}"
    )


def memory(of: Mapping[str, Any]) -> list[str]:
    """What the command will have in memory, by part, and what the user can lower.

    Args:
        of: `memory` of the outlook.

    Returns:
        Lines; a warning where the machine has less.
    """
    peak, lower = of["peak_mb"], of["lower"]
    parts, phases = _megabytes(of["parts_mb"]), _megabytes(of["phases_mb"])
    cure = "" if lower is None else f"; {opt(lower)} lowers the largest part that can be lowered"
    lines = [f"memory: at most {peak:,.0f} MB, in {of['phase']} ({parts}){cure}"]
    for one, plural in (("client", "clients"), ("shadow", "shadows")):
        if own := of.get(f"one_{one}_mb"):
            lines.append(
                f"memory of one {one} at work: {sum(own.values()):,.1f} MB ({_megabytes(own, 1)}); "
                f"{of[f'{plural}_at_work']} at once"
            )
    lines.append(f"memory by phase: {phases}")
    if of["card"]:
        lines.append("memory is counted for a CPU; on a card it is unmeasured")
    if (free := of["free_mb"]) is not None and free < peak:
        lines.append(f"WARNING: only {free:,.0f} MB of memory are free here{cure}")
    return lines


def _megabytes(parts: Mapping[str, float], digits: int = 0) -> str:
    """Parts that show at so many digits."""
    least = 0.5 / 10**digits
    large = {name.replace("_", " "): size for name, size in parts.items() if size >= least}
    return ", ".join(f"{name} {size:,.{digits}f}" for name, size in large.items())


def of_subjects(row: Mapping[str, Any]) -> list[str]:
    """What the subjects of an audit could show: over all of them, then of one.

    Args:
        row: the outlook, as `--plan --json` prints it.

    Returns:
        Lines.
    """
    of, one, lines = row["subjects"], row.get("one_subject"), list[str]()
    sides = f"{of['scored_members']} and {of['scored_nonmembers']}"
    each = " and ".join(f"{n:.3g}" for n in of["images_each"])
    lines.append(f"scored subjects: {sides}, of {each} images on average")
    if "design_effects" in of:
        lines.append(f"{smallest_leak(row['smallest_auc'], row['tests'])}; {_basis(of)}")
        if (leak := row["leak"]) is not None:
            lines.append(_subjects_needed(leak, of))
    if one is not None:
        lines += [_rank(one), *_chances(one)]
    return lines


def _basis(of: Mapping[str, Any]) -> str:
    """By what a leak over subjects was foreseen."""
    effects = " and ".join(f"{n:.2g}" for n in of["design_effects"])
    alike = of["correlation"]
    if alike is None:
        return "no subject of the pilot has two images: taken for wholly alike"
    pilot = "by {} and {} subjects of a pilot".format(*of["pilot"])
    alike = f"two images of a subject have scores that correlate by {number(alike)}"
    return f"an estimate: {pilot} {alike} (design effects {effects})"


def _subjects_needed(leak: float, of: Mapping[str, Any]) -> str:
    """Whether the subjects are enough to show a leak."""
    needed, available = of["needed"], of["available"]
    count = "more than ten million" if needed is None else f"about {needed:,}"
    enough = "are too few" if needed is None or available < needed else "are enough"
    return (
        f"a leak of AUC {leak:g} needs {count} scored subjects of as many images on each side; "
        f"the {available:,} that can be scored {enough}"
    )


def _rank(one: Mapping[str, Any]) -> str:
    """How small the p-value of one subject can be, and beside how many it is small enough."""
    others, needed, tests = one["others"], one["others_needed"], one["tests"]
    whose = "a subject" if one["name"] is None else one["name"]
    count = "1 test needs" if tests == 1 else f"{tests:,} tests need"
    text = (
        f"was {whose} used? Beside {others} others p is at least {format_p(one['smallest_p'])}; "
        f"{count} {needed:,} others"
    )
    if others >= needed:
        return f"{text}: enough"
    ways = [
        "members of one subject" * (one["name"] is None),
        "--attacks dataset-inference alone" * (one["attacks"] > 1),
    ]
    fewer = " and ".join(filter(None, ways))
    return f"{text}: too few" + (f"; {fewer} need {one['others_needed_alone']}" if fewer else "")


def _chances(one: Mapping[str, Any]) -> list[str]:
    """What one subject with so many images can be told."""
    images, tests = one["images"], one["beside_tests"]
    counts = ", ".join(map(str, images))
    least = ", ".join(
        "none" if (auc := each["smallest_auc"]) is None else number(auc) for each in images.values()
    )
    chances = ", ".join(f"{100 * each['chance']:.0f}" for each in images.values())
    alike = one["correlation"]
    rests = (
        "no subject of the pilot has two images, which are taken for wholly alike"
        if alike is None
        else f"those of a subject correlate by {number(alike)}, as in the pilot"
    )
    by = "one test" if tests == 1 else f"{tests:,} tests"
    return [
        f"with {counts} images a used subject is named in 80 of 100 cases if single images have "
        f"AUC {least}; if AUC {one['leak']:g}, in {chances} of 100, and one that was not used in "
        f"{100 * one['chance_unused']:.0f}",
        f"this is by {by} beside {one['beside']:,} others with as many images, if scores are "
        f"normal, {rests}, and the untrained encoder tells nothing",
    ]
