"""What stands beside the tables of a report: what they show, and what their numbers rest on."""

from __future__ import annotations

from fedmia.records.rows import Report
from fedmia.report.selection import FEW, count_clients, unit_of
from fedmia.report.void import void_reason
from fedmia.report.words.attacks import DECIDES, fits_sentence, regime_sentence
from fedmia.report.words.bounds import aggregation_sentence, bound_sentence, defended_sentence
from fedmia.report.words.clients import clients_sentence, named_sentence, per_client_sentence
from fedmia.report.words.exposed import exposed_sentence
from fedmia.report.words.health import collapsed_sentence
from fedmia.report.words.suspects import suspects_sentence
from fedmia.statistics.power import POWER

NO_ATTACK = "No attack was run."
BY_ATTACKS = ("regime", "clients", "bound", "defended", "named", "per_client")


def sentences(report: Report) -> dict[str, str | None]:
    """What is said beside the tables, by what it is about; None where there is nothing to say."""
    texts = {
        "fits": fits_sentence(report.attacks),
        "regime": regime_sentence(report.regime),
        "health": collapsed_sentence(report),
        "aggregation": aggregation_sentence(report),
        "clients": clients_sentence(report),
        "bound": bound_sentence(report),
        "defended": defended_sentence(report.defended),
        "named": named_sentence(report),
        "per_client": per_client_sentence(report),
        "suspects": suspects_sentence(report.suspects),
        "exposed": exposed_sentence(report),
    }
    # Where nothing follows from the attacks, nothing is said by them.
    void = void_reason(report) is not None
    return {name: None if void and name in BY_ATTACKS else text for name, text in texts.items()}


def limits(report: Report) -> str:
    """What the brackets of attacks and controls hold together with."""
    family = report.family
    return (
        "[low, high] are two-sided: in 95 of 100 reports those of all attacks hold their true "
        f"values at once ({family.method}). {DECIDES}: the tests for a leak, {family.intervals} of "
        "attacks and of attacks on whole data sets, share one error of 5 %. A control whose "
        "interval excludes 0.5 voids the run; these intervals are two-sided, and hold together "
        f"with those of paired differences and of the attacks beside them, "
        f"{family.intervals_controls} in all. The 95 % intervals alone are two-sided and cover one "
        "number each."
    )


def power(report: Report) -> str | None:
    """How often the smallest leak would be found; None where the verdict names none."""
    if report.verdict_code != "not-established":
        return None
    return (
        f"The smallest leak under “How sure” would be established {POWER:.0%} of the time, with "
        f"{report.family.intervals} simultaneous tests."
    )


def sets_title(report: Report) -> str:
    """The question that the attacks on sets answer."""
    return f"Sets: are these {report.sets[0].size} images members?"


def sets_limits(report: Report) -> str:
    """What the brackets of attacks on sets hold together with."""
    return (
        f"Low and high cover the {report.family.intervals_sets} rows of this table, separately "
        "from those of images. The verdict does not use them: they are the images' scores once "
        "more."
    )


def data_set_tests(report: Report) -> str:
    """How p-values of whole data sets count for the verdict."""
    return (
        "The verdict counts the smallest of these p-values as one of its "
        f"{report.family.intervals} tests; a set that the untrained encoder tells as well does not "
        "count."
    )


def listed_clients(report: Report, rows: int) -> str | None:
    """That a table lists few of many clients; None where it lists all.

    Args:
        report: of the clients.
        rows: of the table.

    Returns:
        The sentence.
    """
    if (clients := count_clients(report)) <= FEW:
        return None
    unit = unit_of(report)
    return (
        f"The table shows {rows} of {clients:,} {unit}s; the last column says why. All {unit}s are "
        "in `table.csv`."
    )


def count_notes(report: Report) -> str:
    """`3 notes on the data, the settings and the numbers`."""
    return f"{len(report.notes)} notes on the data, the settings and the numbers"
