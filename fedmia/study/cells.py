"""The runs of a study, as `study.json` keeps them beside the numbers, which the table has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmia.records.rows import Report
from fedmia.report.void import void_reason
from fedmia.storage.json_rows import to_json
from fedmia.study.points import largest_epsilon


@dataclass(frozen=True)
class CellState:
    """One run of a study, as `study.json` has it.

    Attributes:
        name: of the run.
        point: of the study, in words.
        grid: path of each option that the study varies -> its value here.
        seed: of the run.
        state: finished, failed, not run.
        reason: why it failed.
        path: its folder under that of the study, once finished.
        verdict: the sentence.
        verdict_code: `leaks`, `not-established`, ..
        void: why its attacks say nothing of its training; None: they count.
        commit: of fedmia's source.
        seconds: that it took.
        not_run: attack that did not run -> why.
        choices: attack -> options that it chose for itself on known images.
        under_attack: attacks that read the models of attacked rounds.
        epsilon: the largest of a defended client, with `value`, `unit`, `standing`; None where
            one states none.
    """

    name: str
    point: str
    grid: Mapping[str, Any]
    seed: int
    state: str
    reason: str | None = None
    path: str | None = None
    verdict: str | None = None
    verdict_code: str | None = None
    void: str | None = None
    commit: str | None = None
    seconds: float | None = None
    not_run: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    under_attack: tuple[str, ...] = ()
    epsilon: Mapping[str, Any] | None = None

    @property
    def outcome(self) -> str | None:
        """Why it is void, else its verdict; None of a run without a report."""
        return self.void or self.verdict_code


def facts(report: Report) -> dict[str, Any]:
    """What is kept of the report of a run."""
    rows = report.attacks
    return {
        "verdict": report.verdict,
        "verdict_code": report.verdict_code,
        "void": void_reason(report),
        "commit": report.versions.get("commit"),
        "seconds": report.timing.get("total_s"),
        "not_run": dict(report.not_run),
        "choices": {row.name: row.choices for row in rows if row.choices},
        "under_attack": [row.name for row in rows if row.under_attack],
        "epsilon": spent(report),
    }


def spent(report: Report) -> Mapping[str, Any] | None:
    """The largest epsilon of a defended client, or what the server's aggregation promises where no
    client defends itself."""
    stated = [to_json(c.defence.epsilon) for c in report.clients if c.defence is not None]
    server = report.aggregation
    epsilon: Mapping[str, Any] | None = largest_epsilon(
        stated or ([to_json(server.epsilon)] if server else [])
    )
    return epsilon
