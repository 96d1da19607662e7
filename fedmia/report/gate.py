"""A gate for a build: the conditions under which a report fails it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from fedmia.options.errors import InputError, suggest_nearest
from fedmia.records.client_rows import ClientRow
from fedmia.records.rows import Report
from fedmia.report.metrics import FPR_TARGETS
from fedmia.storage.durable import explain

CODES = ("leaks", "leaks-uncontrolled", "shift", "control-failed", "collapsed", "no-verdict")
FORMS = (*CODES, "auc>X", "tpr@FPR>X", "epsilon>X")
ENDS: tuple[Literal["auc", "low", "high"], ...] = ("auc", "low", "high")
MEASURE = re.compile(r"(auc|tpr@([0-9.]+)|epsilon)>([0-9.]+)")


@dataclass(frozen=True)
class Condition:
    """What fails a report.

    Attributes:
        text: as the user wrote it.
        limit: of a measure; None: the text is a verdict's code.
        fpr: of FPR_TARGETS, of the condition on a true-positive rate; None: it is another.
    """

    text: str
    limit: float | None = None
    fpr: str | None = None

    def failure(self, report: Report) -> str | None:
        """Why the report fails, one line; None where it does not. What cannot be known fails."""
        if self.limit is None:
            return report["verdict"] if report["verdict_code"] == self.text else None
        if self.text.startswith("epsilon"):
            return self._epsilon(report)
        if not report["attacks"]:
            return "no attack has scores"
        values = {a["name"]: a["auc"] for a in report["attacks"]}
        if self.fpr is not None:
            values = {a["name"]: a["tpr_at_fpr"].get(self.fpr) for a in report["attacks"]}
        unknown = [name for name, value in values.items() if value is None]
        if unknown:
            return f"{', '.join(unknown)}: too few non-members for this rate, or none scored"
        worst = max(values, key=lambda name: values[name] or 0.0)
        value = values[worst] or 0.0
        return f"{worst} has {value:.3f}" if value > self.limit else None

    def _epsilon(self, report: Report) -> str | None:
        limit, server = self.limit or 0.0, report.get("aggregation")
        by_server = server and server["epsilon"] and server["epsilon"]["value"]
        clients = (row for row in report["clients"] if "name" not in row)  # no subjects
        honest = [row for row in clients if row["role"] == "honest"]
        stated = {row["id"]: _least(row, by_server) for row in honest}
        if not stated:
            return "the report states no epsilon"
        client, value = max(
            stated.items(), key=lambda one: float("inf") if one[1] is None else one[1]
        )
        if value is None:
            return f"no epsilon is stated for client {client}"
        return f"client {client} has epsilon {value:g}" if value > limit else None


@dataclass(frozen=True)
class Gate:
    """Conditions on a report, and files that say what became of them.

    Attributes:
        conditions: any of which fails the report.
        junit: XML file in JUnit's format, or None.
        summary: Markdown file that is added to, or None.
    """

    conditions: tuple[Condition, ...] = ()
    junit: Path | None = None
    summary: Path | None = None

    def check(self, report: Report) -> list[str]:
        """Lines on the conditions that the report fails; writes the files.

        Args:
            report: of a run or an audit.

        Returns:
            One line for each, empty where the build may pass.

        Raises:
            DiskError: a file cannot be written.
        """
        failures = {one.text: one.failure(report) for one in self.conditions}
        if self.junit is not None:
            with explain():
                self.junit.write_text(_junit(failures), encoding="utf-8")
        if self.summary is not None:
            with explain(), self.summary.open("a", encoding="utf-8") as file:
                file.write(_markdown(report, failures))
        return [f"{text}: {why}" for text, why in failures.items() if why is not None]


def read_conditions(text: str) -> tuple[Condition, ...]:
    """Conditions as `--fail-on` says them: `leaks,shift,auc>0.6,tpr@0.01>0.05,epsilon>8`.

    Raises:
        InputError: an unknown one, or a number out of its range.
    """
    return tuple(_read_condition(part.strip()) for part in text.split(","))


def _read_condition(text: str) -> Condition:
    if text in CODES:
        return Condition(text)
    if (match := MEASURE.fullmatch(text)) is None:
        near = suggest_nearest(text, CODES)
        raise InputError(f"--fail-on: unknown condition '{text}'{near} (known: {', '.join(FORMS)})")
    try:
        limit, fpr = float(match[3]), None if match[2] is None else f"{float(match[2]):g}"
    except ValueError:
        raise InputError(f"--fail-on: '{text}' holds no number") from None
    if fpr is not None and fpr not in FPR_TARGETS:
        raise InputError(f"--fail-on: '{text}', must be at one of {', '.join(FPR_TARGETS)}")
    if not text.startswith("epsilon") and limit >= 1:
        raise InputError(f"--fail-on: '{text}', must be less than 1")
    return Condition(text, limit, fpr)


def _least(row: ClientRow, by_server: float | None) -> float | None:
    """The epsilon that holds for a client: its own or the server's, whichever is less."""
    own = row["defence"] and row["defence"]["epsilon"] and row["defence"]["epsilon"]["value"]
    return min((one for one in (own, by_server) if one is not None), default=None)


def _junit(failures: dict[str, str | None]) -> str:
    failed = sum(why is not None for why in failures.values())
    suite = ElementTree.Element(
        "testsuite", name="fedmia", tests=str(len(failures)), failures=str(failed)
    )
    for text, why in failures.items():
        case = ElementTree.SubElement(suite, "testcase", classname="fedmia", name=text)
        if why is not None:
            ElementTree.SubElement(case, "failure", message=why).text = why
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _markdown(report: Report, failures: dict[str, str | None]) -> str:
    return "\n".join(_lines(report, failures)) + "\n"


def _lines(report: Report, failures: dict[str, str | None]) -> Iterator[str]:
    yield from ("## Membership inference", "", report["verdict"], "")
    if failures:
        yield from _table(
            ("condition", "result"),
            (
                (text, "passed" if why is None else f"**failed**: {why}")
                for text, why in failures.items()
            ),
        )
    if report["attacks"]:
        yield from _table(
            ("attack", "AUC", "low", "high"),
            (
                (a["name"], *map(_number, (a["auc"], a["low"], a["high"])))
                for a in report["attacks"]
            ),
        )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for cells in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    yield ""
