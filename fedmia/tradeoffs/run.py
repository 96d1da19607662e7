"""A trade-off from its settings to `tradeoff.json` and its page, by the sweep that it is."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event

from fedmia.cli.command import Invocation
from fedmia.config.tradeoff import Tradeoff
from fedmia.report.rows import Report
from fedmia.report.tell import tell, write_files
from fedmia.sweeping.rows import SweepReport
from fedmia.sweeping.run import done, simulation
from fedmia.sweeping.runs import Start
from fedmia.tradeoffs.choice import choose, sentence
from fedmia.tradeoffs.gather import rows
from fedmia.tradeoffs.groups import split
from fedmia.tradeoffs.page import page
from fedmia.tradeoffs.points import family, points
from fedmia.tradeoffs.rows import FORMAT, TradeoffReport
from fedmia.tradeoffs.tables import terminal


def conduct(asked: Invocation, stop: Event, start: Start = simulation) -> int:
    """Do the runs that are not finished yet, compare the defences, write and print; the exit code.

    Args:
        start: makes the command line of a run's process.

    Raises:
        InputError: no folder, or one of something else.
    """
    tradeoff: Tradeoff = asked.settings
    swept = done(tradeoff.sweep, tradeoff.tree(), asked, stop, start)
    report = compare(tradeoff, swept.report, swept.finished)
    from fedmia.tradeoffs.figures import draw  # matplotlib takes its time

    figure = draw(report)
    file = write_files(swept.out / "tradeoff", report, page(report, figure), figure)
    tell(report, lambda: terminal(report), file, json=asked.json, quiet=asked.quiet)
    return swept.code


def compare(
    tradeoff: Tradeoff, swept: SweepReport, finished: Mapping[str, tuple[str, Report]]
) -> TradeoffReport:
    """The whole of `tradeoff.json`.

    Args:
        swept: the report of the trade-off's sweep.
        finished: key of each finished run -> its folder, and its report.
    """
    told = list(rows(tradeoff, swept, finished))
    by_point = [
        [r for r in told if (r["defense"], r["strength"]) == (t.defense, t.strength)]
        for t in tradeoff.trades
    ]
    found = points(tradeoff.trades, swept["points"], by_point)
    split(found, tradeoff, finished)
    choice = choose(found, by_point)
    return {
        "format": FORMAT,
        "sentence": sentence(found, choice),
        "rows": told,
        "points": found,
        "choice": choice,
        "family": family(found),
        "seeds": swept["seeds"],
        "finished": swept["finished"],
        "failed": swept["failed"],
        "not_run": swept["not_run"],
        "notes": notes(swept),
        "config": tradeoff.tree(),
        "timing": swept["timing"],
    }


def notes(swept: SweepReport) -> list[str]:
    """What a reader of the means must know."""
    found = list(swept["notes"])
    codes = {code for point in swept["points"] for code in point["verdicts"]}
    if doubtful := sorted(codes & {"shift", "control-failed"}):
        found.append(
            f"Runs with the verdict {' or '.join(doubtful)} have an AUC that is no leak alone: see "
            "their own pages."
        )
    if "collapsed" in codes:
        found.append(
            "A collapsed encoder tells no images apart: it leaks little and serves nobody."
        )
    return found
