"""A gate for a build: what became of the conditions under which a report fails it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from fedmia.records.rows import Report
from fedmia.report.conditions import Condition
from fedmia.report.words.attacks import not_run_lines
from fedmia.report.words.gate import outcome
from fedmia.report.words.numbers import number
from fedmia.storage.durable import explain


@dataclass(frozen=True)
class ConditionResult:
    """What became of a condition.

    Attributes:
        condition: as the user wrote it.
        failed: whether the report fails it.
        why: in one line.
    """

    condition: str
    failed: bool
    why: str

    def __str__(self) -> str:
        return outcome(self.condition, self.failed, self.why)


class Gate:
    """Conditions on a report, and files that say what became of them.

    Args:
        conditions: any of which fails the report.
        junit: XML file in JUnit's format, or None.
        summary: Markdown file that is added to, or None.
    """

    def __init__(
        self, conditions: Sequence[Condition], junit: Path | None = None,
        summary: Path | None = None,
    ) -> None:  # fmt: skip
        self._conditions, self._junit, self._summary = conditions, junit, summary

    def check(self, report: Report) -> list[ConditionResult]:
        """What became of each condition; writes the files.

        Args:
            report: of a run or an audit.

        Returns:
            One for each condition, in their order.

        Raises:
            DiskError: a file cannot be written.
        """
        outcomes = [ConditionResult(one.text, *one.judge(report)) for one in self._conditions]
        if self._junit is not None:
            with explain():
                self._junit.write_text(_junit(outcomes), encoding="utf-8")
        if self._summary is not None:
            with explain(), self._summary.open("a", encoding="utf-8") as file:
                file.write("\n".join(_markdown(report, outcomes)) + "\n")
        return outcomes


def _junit(outcomes: Sequence[ConditionResult]) -> str:
    failed = sum(one.failed for one in outcomes)
    suite = ElementTree.Element(
        "testsuite", name="fedmia", tests=str(len(outcomes)), failures=str(failed)
    )
    for one in outcomes:
        case = ElementTree.SubElement(suite, "testcase", classname="fedmia", name=one.condition)
        if one.failed:
            ElementTree.SubElement(case, "failure", message=one.why).text = one.why
        else:
            ElementTree.SubElement(case, "system-out").text = one.why
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _markdown(report: Report, outcomes: Sequence[ConditionResult]) -> Iterator[str]:
    yield from ("## Membership inference", "", report.verdict, "")
    yield from _table(
        ("condition", "result", "why"),
        ((one.condition, ("passed", "**failed**")[one.failed], one.why) for one in outcomes),
    )
    if report.attacks:
        yield from _table(
            ("attack", "AUC", "low", "high"),
            ((a.name, *map(_number, (a.auc, a.low, a.high))) for a in report.attacks),
        )
    for line in not_run_lines(report):
        yield from (line, "")


def _number(value: float | None) -> str:
    return "" if value is None else number(value, 3)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for cells in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    yield ""
