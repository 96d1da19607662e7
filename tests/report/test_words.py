"""Every sentence of a finding is one that a function of `fedmia.report.words` made, and no other
module puts a number into prose."""

from __future__ import annotations

import ast
import functools
import html
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
import numpy as np
import pytest
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from fedmia.records import DatasetInferenceResults, Evaluation, ScoredAttack
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.codes import CODES
from fedmia.report.conditions import read_conditions
from fedmia.report.gate import Gate
from fedmia.report.notebook import html_summary
from fedmia.report.page import page
from fedmia.report.terminal import render
from fedmia.report.words.card import model_card
from fedmia.report.words.meaning import TITLES
from tests.report.conftest import compared, make_everything, suspect
from tests.report.test_report_words import AUDIT, cases
from tests.test_layering import ROOT

WORDS = "fedmia.report.words"
TEMPLATES = ROOT / "fedmia" / "report" / "templates"
CONDITIONS = (
    "leaks,shift,auc>0.6,tpr@0.01>0.05,tpr@0.001>0.05,epsilon>8,epsilon[heuristic]>8,smallest>0.6"
)
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z“])")


# -- which sentences there are --------------------------------------------------------------------


def plain(text: str) -> str:
    """Without markup, and with one space where there is any."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).replace("`", "").split())


def strings(value: Any) -> Iterator[str]:
    """The texts in what a function returned."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from strings(one)


@contextmanager
def recorded() -> Iterator[set[str]]:
    """The texts that functions of the package return meanwhile, whoever calls them."""
    texts = set[str]()

    def recording(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **more: Any) -> Any:
            value = function(*args, **more)
            texts.update(map(plain, strings(value)))
            return value

        return call

    ours = [module for name, module in sys.modules.items() if name.startswith("fedmia.")]
    with pytest.MonkeyPatch.context() as patch:
        for module, (name, value) in [(m, one) for m in ours for one in vars(m).items()]:
            if inspect.isfunction(value) and value.__module__.startswith(WORDS):
                patch.setattr(module, name, recording(value))
        yield texts


def of_terminal(report: Report) -> Iterator[str]:
    """The texts that are no table; what every report has as a title is left out."""
    parts = render(report)
    assert isinstance(parts, Group)
    for part in parts.renderables:
        text = part.renderable if isinstance(part, Panel) else part
        if isinstance(text, Text):
            title = next((f"{t}: " for t in TITLES.values() if text.plain.startswith(t)), "")
            yield text.plain.removeprefix(title)


@functools.cache
def fixed() -> str:
    """What stands in the template of the page for every report."""
    lexed = jinja2.Environment().lex((TEMPLATES / "page.j2").read_text(encoding="utf-8"))
    return plain(" ".join(text for _, kind, text in lexed if kind == "data"))


def of_page(document: str, notes: Sequence[str]) -> Iterator[str]:
    """The paragraphs, points and heads of folds, but for notes and what stands in the template."""
    tags = "p|li|summary"
    for paragraph in re.findall(rf"<(?:{tags})\b[^>]*>(.*?)</(?:{tags})>", document, re.S):
        text = plain(paragraph)
        if '<a href="#' not in paragraph and text not in map(plain, notes):
            yield from (one for one in SENTENCE.split(text) if one not in fixed())


def of_gate(report: Report, folder: Path) -> Iterator[str]:
    """What became of conditions, in both files and on standard error."""
    files = folder / "junit.xml", folder / "summary.md"
    files[1].unlink(missing_ok=True)
    yield from map(str, Gate(read_conditions(CONDITIONS), *files).check(report))
    yield from (e.text or "" for e in ElementTree.parse(files[0]).iter() if e.text)
    lines = files[1].read_text(encoding="utf-8").splitlines()
    yield from (line for line in lines if not line.startswith(("|", "#")))


def printed(report: Report, folder: Path) -> Iterator[tuple[str, str]]:
    """Where a sentence is printed, and the sentence."""
    notes = report.notes
    places: dict[str, Iterator[str]] = {
        "terminal": of_terminal(report),
        "page": of_page(page(report, {}), notes),
        "summary": of_page(html_summary(report), notes),
        "card": iter(model_card(report).split("\n\n")),
        "gate": of_gate(report, folder),
    }
    for place, texts in places.items():
        for text in texts:
            yield from ((place, one.rstrip(".")) for one in SENTENCE.split(plain(text)))


def of_a_finding(report: Report, sentence: str) -> bool:
    """Whether a sentence carries a number, or names an attack of the report."""
    names = {row.name for row in report.attacks} | {row.attack for row in report.dataset_inference}
    names |= {*report.not_run}
    return bool(re.search(r"\d", sentence) or names & {*re.findall(r"[\w-]+", sentence)})


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


def strangers(run: Evaluation, folder: Path) -> tuple[str, list[tuple[str, str]]]:
    """The verdict's code, and sentences of a finding that no function of the package returned."""
    with recorded() as texts:
        report = build_report(renamed(run))
        listed = list(printed(report, folder))
    whole = "\n".join(texts)
    listed = [one for one in listed if of_a_finding(report, one[1])]
    assert {place for place, _ in listed} >= {"page", "card", "gate"}
    return report.verdict_code, [one for one in listed if one[1] not in whole]


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


@pytest.mark.parametrize("kind", KINDS)
def test_sentences__come_from_the_words(kind: str, run: Evaluation, tmp_path: Path) -> None:
    codes, tried = set[str](), set[str]()
    for code, one in cases(run):
        if kind == "run" or (code not in tried and len(one.member_ids)):
            found, others = strangers(KINDS[kind](one), tmp_path)
            assert others == [], code
            codes.add(found)
            tried.add(code)
    assert codes == {*CODES} - ({"shift"} if kind == "vectors" else set())  # they have no pixels


def test_sentences__of_everything_come_from_the_words(run: Evaluation, tmp_path: Path) -> None:
    assert strangers(make_everything(run), tmp_path)[1] == []


def doubled(report: Report) -> set[str]:
    """Clauses with a number that the verdict and the boxes under it say twice."""
    boxes = [report.verdict, report.means, report.sure, report.todo]
    clauses = [c.strip(" .") for box in boxes for c in re.split(r"[.;:] | but ", plain(box))]
    return {one for one in clauses if re.search(r"\d", one) and clauses.count(one) > 1}


@pytest.mark.parametrize("kind", KINDS)
def test_sentences__no_number_is_said_twice(kind: str, run: Evaluation) -> None:
    for code, one in cases(run):
        if len(one.member_ids):
            assert not doubled(build_report(renamed(KINDS[kind](one)))), code


def test_sentences__one_from_elsewhere_is_seen(
    run: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "The attack combined has AUC 0.99 all the same"
    monkeypatch.setattr("fedmia.report.terminal.defended_lines", lambda report: [f"{said}."])
    assert strangers(run, tmp_path)[1] == [("terminal", said)]
    monkeypatch.undo()
    monkeypatch.setattr("fedmia.report.page.legend", lambda report, whole: f"{said}.")
    assert strangers(run, tmp_path)[1] == [("page", said)]


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


@pytest.mark.parametrize(
    "line",
    [
        'text = f"{name} has {auc:.3f}"',
        'text = f"{name} has {estimate(row.auc, row.auc_ci)}"',
        'text = f"p = {p:.{digits}f}"',
        'text = "AUC " + number(auc)',
        'log.info("AUC %.3f", auc)',
    ],
)
def test_numbers__each_way_into_prose_is_seen(line: str) -> None:
    assert list(prose(line)) == [1]
    assert not list(prose('cell = number(auc, 3)\ntext = f"{n:,} images, round {round}"'))
