"""Sentences of findings in reports of each kind: no number is said twice, and no module but those
of `fedmia.report.words` puts a number into prose."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmia.records import DatasetInferenceResults, Evaluation, ScoredAttack
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.codes import CODES
from fedmia.report.page import page
from tests.report.conftest import AUDIT, Page, card, cases, compared, said, suspect
from tests.test_layering import ROOT


def plain(text: str) -> str:
    """Without markup, and with one space where there is any."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).replace("`", "").split())


def renamed(run: Evaluation) -> Evaluation:
    """The run with `attack-a` for `a`, which is a word of English; papers have capitals."""

    def longer(name: str) -> str:
        return f"attack-{name}" if len(name) == 1 else name

    def called(attacks: Sequence[ScoredAttack]) -> list[ScoredAttack]:
        return [replace(one, name=longer(one.name)) for one in attacks]

    return replace(
        run,
        attacks=called(run.attacks),
        controls={name: called(attacks) for name, attacks in run.controls.items()},
        not_run={longer(name): why for name, why in run.not_run.items()},
        inferences=[replace(one, paper="Paper") for one in run.inferences],
    )


# -- kinds of report ------------------------------------------------------------------------------


def audit(run: Evaluation) -> Evaluation:
    """Of an encoder that somebody brought."""
    return replace(run, encoder=AUDIT, rounds=(), clients=(), curves=None, drawn=False)


def federation(run: Evaluation) -> Evaluation:
    """Of a recording with updates."""
    suspects = [suspect(9, 12.5, True), suspect(2, 1.5, False), suspect(4, None, None)]
    return replace(run, encoder=AUDIT, rows={"suspects": suspects}, interrupted=run.interrupted)


def vectors(run: Evaluation) -> Evaluation:
    """Of vectors, without an encoder."""
    config = {"member_embeddings": "a.npy", "attacks": ["a"]}
    return replace(run, config=config, rounds=(), clients=(), curves=None, pixels=None)


def patients(run: Evaluation) -> Evaluation:
    """Of images of patients, of whom one attack asks two and one asks a single one."""
    n, m = len(run.member_ids), len(run.nonmember_ids)
    rows = [compared(i, 0.02 + i / 10, 8, m, 0.02 + i / 10) for i in range(2)]
    inferences = [
        DatasetInferenceResults("dataset-inference", "p", rows, []),
        DatasetInferenceResults("one-set", "p", rows[:1], []),
    ]
    return replace(
        run,
        encoder=AUDIT,
        rounds=(),
        curves=None,
        subjects=(np.arange(n) % 14, np.arange(m) % 40),
        subject_names=[f"patient {i}" for i in range(14)],
        inferences=inferences if run.attacks else (),
    )


def many(run: Evaluation) -> Evaluation:
    """Of more clients than are listed, most of which hold no scored image."""
    clients = [replace(run.clients[i % 9], id=i, last_round=i % 7) for i in range(1200)]
    p_values = [compared(i, (i + 20) / 80, 2) for i in range(60)]
    results = [DatasetInferenceResults("dataset-inference", "p", p_values, [])]
    return replace(
        run,
        clients=clients,
        member_client=np.arange(len(run.member_ids)) % 60,
        inferences=[*run.inferences, *results] if run.attacks else (),
    )


KINDS: dict[str, Callable[[Evaluation], Evaluation]] = {
    "run": lambda run: run,
    "audit": audit,
    "federation": federation,
    "vectors": vectors,
    "patients": patients,
    "many": many,
}


def doubled(report: Report) -> set[str]:
    """Clauses with a number that the verdict and the boxes under it say twice."""
    boxes = [report.verdict, report.means, report.sure, report.todo]
    clauses = [c.strip(" .") for box in boxes for c in re.split(r"[.;:] | but ", plain(box))]
    return {one for one in clauses if re.search(r"\d", one) and clauses.count(one) > 1}


# One of many clients or of subjects takes a second.
SOME = {"many": ("leaks", "not-established"), "patients": ("leaks", "not-established", "shift")}
NOTHING = re.compile(r"\b(None|nan|inf)\b|[{}]")


@pytest.mark.parametrize("kind", KINDS)
def test_sentences__say_no_number_twice_and_none_that_is_missing(
    kind: str, run: Evaluation
) -> None:
    tried = set[str]()
    for code, one in cases(run):
        if code not in tried and len(one.member_ids) and code in SOME.get(kind, CODES):
            report = build_report(renamed(KINDS[kind](one)))
            assert not doubled(report), code
            for text in (said(report), card(report)):
                assert not NOTHING.search(text), code
            if code in ("leaks", "not-established"):
                assert "None" not in Page(page(report, {})).text(opened=True)
            tried.add(code)
    assert tried == {*SOME.get(kind, CODES)}


# -- numbers in prose elsewhere -------------------------------------------------------------------

LOOKED_AT = ("report", "door", "flower", "observers", "evaluation")
FORMATS = {"estimate", "interval", "format_p", "number", "signed", "auc_and_limits"}
# Tables, files and figures, and what is no finding: file -> why.
ALLOWED = {
    "evaluation/budgets.py": "queries, in an error",
    "flower/rounds.py": "loss and kNN of a round, on the screen while it runs",
    "report/csvs.py": "a file of scores",
    "report/figures": "figures",
    "report/report_tables.py": "cells",
    "report/tables.py": "cells",
}
PRINTF = re.compile(r"%[-+ 0#]*\d*\.\d*[efg]")
SPEC = re.compile(r"\.\d*[efg%]$")


def prose(source: str) -> Iterator[int]:
    """Lines that put a fraction into a text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FormattedValue):
            parts = getattr(node.format_spec, "values", ())
            spec = "".join(p.value if isinstance(p, ast.Constant) else "2" for p in parts)
            called = {n.func.id for n in ast.walk(node.value) if _calls(n)}
            if SPEC.search(spec) or called & FORMATS:
                yield node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if PRINTF.search(node.value):
                yield node.lineno
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            sides = node.left, node.right
            if any(_calls(side) and side.func.id in FORMATS for side in sides):
                yield node.lineno


def _calls(node: ast.AST) -> Any:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def test_numbers__stand_in_no_prose_elsewhere() -> None:
    seen, used = [], set[str]()
    for package in LOOKED_AT:
        for path in sorted((ROOT / "fedmia" / package).rglob("*.py")):
            name = path.relative_to(ROOT / "fedmia").as_posix()
            if name.startswith("report/words/"):
                continue
            lines = list(prose(path.read_text(encoding="utf-8")))
            allowed = [one for one in ALLOWED if name.startswith(one)]
            used |= {*allowed} if lines else set()
            seen += [] if allowed else [f"{name}:{line}" for line in lines]
    assert not seen
    assert used == {*ALLOWED}, "an exception that no file needs"
