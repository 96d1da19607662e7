"""What stands open on the page is plain: statistics and explanations are folded."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import fedmia.report
from fedmia.records import (
    MEAN,
    ClientInference,
    DatasetInferenceResults,
    RunScores,
    ScoredAttack,
    SetScores,
)
from fedmia.report.build import build_report
from fedmia.report.page import page
from fedmia.report.plain import count_pairs, plain_verdict

Scored = Callable[..., ScoredAttack]
TECHNICAL = re.compile(
    r"simultaneous|holm|interval|\bnull\b|p-value is|permut|bonferroni|\d \[", re.I
)
TEMPLATES = Path(fedmia.report.__file__).parent / "templates"


class OpenText(HTMLParser):
    """Text that a reader sees before unfolding anything, without tables and boxes."""

    HIDDEN = ("details", "table", "style", "figcaption", "nav", "head")

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.boxed, self.text = 0, 0, list[str]()
        self.folded = list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.depth += tag in self.HIDDEN
        if tag == "div":
            self.boxed += 1

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag in self.HIDDEN
        if tag == "div":
            self.boxed -= 1

    def handle_data(self, data: str) -> None:
        (self.folded if self.depth or self.boxed else self.text).append(data)


def split_text(document: str) -> tuple[str, str]:
    parser = OpenText()
    parser.feed(document)
    return " ".join(" ".join(parser.text).split()), " ".join(" ".join(parser.folded).split())


@pytest.fixture
def everything(run: RunScores) -> RunScores:
    """A run with sets and dataset inference too."""
    clients = [ClientInference(i, 0.01 * (i + 1), 0.1, 12, 400) for i in range(3)]
    posers = [ClientInference(None, float(p), 0.0, 8, 50) for p in np.linspace(0.01, 1, 100)]
    values = np.arange(6, dtype=float)
    return replace(
        run,
        sets=[SetScores("similarity", MEAN, 8, values + 1, values)],
        inferences=[DatasetInferenceResults("dataset-inference", "p", clients, posers)],
    )


def test_page__open_text_has_no_statistics(everything: RunScores) -> None:
    report = build_report(everything)
    open_text, folded = split_text(page(report, {"attacks": b"x"}))
    assert TECHNICAL.findall(open_text) == []
    assert plain_verdict(report) in open_text
    for phrase in (
        report["verdict"],
        "A paired control is the same attack on the same images",
        "A control has failed where its simultaneous interval excludes 0.5",
        "Averaging alone already separates sets better than images",
        "Holm's p-value is corrected for all clients",
        "The null is the control",
    ):
        assert phrase in folded and phrase not in open_text


def test_templates__explanations_are_folded_on_every_page() -> None:
    for file in sorted(TEMPLATES.glob("*.j2")):
        if file.name.endswith(".md.j2"):
            continue  # no page, and Markdown folds nothing
        text = re.sub(
            r"\{% call explain\(.*?\{% endcall %\}|<details.*?</details>",
            "",
            file.read_text(),
            flags=re.S,
        )
        assert not TECHNICAL.findall(re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", text)), file.name


def test_count_pairs__is_the_share_of_pairs_that_the_attack_orders_right(
    run: RunScores, scored: Scored
) -> None:
    attack = scored("similarity", 0.8, 112, 500, 1)
    pairs = attack.scores_members[:, None] > attack.scores_nonmembers[None, :]
    report = build_report(replace(run, attacks=[attack], controls={}, pairs=[]))
    assert f"the member {100 * pairs.mean():.0f} times of 100; guessing: 50" in plain_verdict(
        report
    )
    assert count_pairs(0.503) == "503 times of 1,000; guessing: 500"
    assert count_pairs(0.996) == "996 times of 1,000; guessing: 500"


def test_plain_verdict__says_each_code_in_words(run: RunScores, scored: Scored) -> None:
    half = [scored("a", 0.5, 112, 500, 1)]
    low, high = scored("b", 0.2, 112, 500, 2), scored("b", 0.8, 112, 500, 2)
    pixels = high.scores_members, high.scores_nonmembers
    alone = replace(run, controls={}, pairs=[], pixels=None)
    expected = {
        "not-established": (replace(alone, attacks=half), "This may be chance."),
        "shift": (replace(alone, pixels=pixels), "a classifier that sees no model"),
        "control-failed": (
            replace(alone, controls={"placebo": [high]}),
            "where nothing can leak (control placebo), b still tells",
        ),
        "leaks": (replace(run, interrupted=3), "The run ended early, after round 3."),
        "leaks-uncontrolled": (alone, "But no control on the same images rules out"),
        "no-verdict": (replace(alone, interrupted=0), "before its first round"),
    }
    for code, (one, phrase) in expected.items():
        report = build_report(one)
        sentence = plain_verdict(report)
        assert report["verdict_code"] == code and phrase in sentence
        assert "simultaneous" not in report["sure"]
        assert not TECHNICAL.search(sentence) and "AUC" not in sentence
    turned = plain_verdict(build_report(replace(alone, attacks=[low])))
    assert "picks the non-member more often" in turned and "chance" not in turned
    attacked = [scored("c", 0.9, 112, 500, 3, under_attack=True, vantage="server")]
    sentence = plain_verdict(build_report(replace(alone, attacks=attacked, pretrain="pooled")))
    assert sentence.startswith("The clients' updates leak, under attack: ")
    sets = [[ClientInference(0, p, 0.1, 20, 50)] for p in (0.0005, 0.7, 0.4)]
    asked = DatasetInferenceResults("dataset-inference", "", *sets)
    report = build_report(replace(alone, attacks=half, inferences=[asked]))
    assert report["verdict_code"] == "leaks" and "whole set of images" in plain_verdict(report)
    assert not TECHNICAL.search(plain_verdict(report))
    weak, same = scored("c", 0.6, 112, 500, 3), scored("c", 0.54, 112, 500, 6)
    alike = build_report(replace(alone, attacks=[weak], controls={"placebo": [same]}))
    assert alike["attacks"][0]["auc_ci_simultaneous"][0] > 0.5
    assert "Its control, where nothing leaks, may do as well." in plain_verdict(alike)
    none = plain_verdict(build_report(replace(alone, attacks=[])))
    assert none.startswith("No attack was scored")


def test_plain_verdict__keeps_what_must_not_be_folded_away(run: RunScores) -> None:
    config = {**run.config, "pretrain": {"mode": "pooled"}}
    report = build_report(replace(run, config=config))
    assert "The server had seen all private images" in plain_verdict(report)
    refuted = {
        **report,
        "verdict": f"CLAIM REFUTED: x; {report['verdict']}",
        "verdict_code": "shift",
    }
    assert plain_verdict(refuted).startswith("CLAIM REFUTED: ")  # type: ignore[arg-type]
    assert '<p class="verdict leaks">CLAIM REFUTED' in page(refuted, {})  # type: ignore[arg-type]
    collapsed = {**report, "health": {**(report["health"] or {}), "collapsed": True}}
    assert "so it is of no use" in plain_verdict(collapsed)  # type: ignore[arg-type]
