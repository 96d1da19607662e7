"""A small run with known ROCs: binormal scores, no model behind them; and how it is shown."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from fedmia import Run, open_run, records
from fedmia.records import (
    ClientInfo,
    Curves,
    DatasetInferenceResults,
    Evaluation,
    Pair,
    Probe,
    ScoredAttack,
)
from fedmia.records.note import Note
from fedmia.records.rows import EncoderRow, HealthRow, OutputRow, Report, RoundRow
from fedmia.report.build import build_report, build_whole
from fedmia.report.page import page
from fedmia.report.publish import json_text, show, write_report
from tests.commands import Ran, fedmia
from tests.made_up_runs import STORED, made_up, made_up_row

AUDIT = made_up(EncoderRow, form="a file", loaded=1, size=8, crops="any")
GONE = HealthRow(cosine=0.99998, loss=4.286, chance=4.29, collapsed=False)


def shift(auc: float) -> float:
    """Difference of two unit normals' means at which the AUC is `auc`."""
    return float(norm.ppf(auc) * np.sqrt(2))


def scored(name: str, auc: float, n: int, m: int, seed: int, **more: object) -> ScoredAttack:
    """Binormal scores of known AUC, 32 known images a side."""
    generator = np.random.default_rng(seed)
    attack = ScoredAttack(
        name=name,
        paper="a paper",
        access="black_box",
        vantage="client",
        scores_members=generator.normal(shift(auc), 1, n),
        scores_nonmembers=generator.normal(0, 1, m),
        known_members=generator.normal(shift(auc), 1, 32),
        known_nonmembers=generator.normal(0, 1, 32),
        queries=1000,
    )
    return replace(attack, **more)  # type: ignore[arg-type]


def by_name(aucs: dict[str, float], round: int) -> dict[str, ScoredAttack]:
    """Scores whose AUCs are `aucs`, whole thousandths, in every fifth round."""
    others = (np.arange(1000) + 0.5) / 1000
    return {
        name: ScoredAttack(name, "a paper", "black_box", "client", np.array([auc]), others)
        for name, auc in aucs.items()
        if round % 5 == 4
    }


def placed(name: str, auc: float, n: int = 112, m: int = 500, **more: Any) -> ScoredAttack:
    """Scores at even quantiles of two normals: their AUC is `auc` to the third decimal."""
    members, others = (norm.ppf((np.arange(k) + 0.5) / k) for k in (n, m))
    attack = ScoredAttack(name, "a paper", "black_box", "client", members + shift(auc), others)
    return replace(attack, **more)


def compared(
    client: int, p: float | None, n: int = 12, others: int = 400, untrained: float | None = None
) -> Any:
    """What an attack on whole data sets says of a client's, before a report corrects it."""
    return made_up_row(
        "dataset_inference.clients", whose="client", client=client, p_value=p, n=n,
        difference=None if p is None else 0.1, n_nonmembers=others, p_value_untrained=untrained,
    )  # fmt: skip


def guessed(
    canaries: int, guesses: tuple[int, ...], correct: tuple[int, ...], audit: str = "one-run"
) -> Any:
    """An audit by canaries, before a report computes its bounds."""
    place = "clients.defence.epsilon.lower_bound"
    return made_up_row(
        place, audit=audit, canaries=canaries, guesses=[*guesses], correct=[*correct]
    )


def claim(value: float | None, **more: Any) -> Any:
    """A heuristic epsilon for one image, in 20 rounds."""
    usual = {
        "delta": 1e-5, "rounds": 20, "standing": "heuristic", "assumptions": "Per image.",
        "noise_source": "seeded", "value": value,
    }  # fmt: skip
    return replace(made_up_row("clients.defence.epsilon", **usual), **more)


def defence(name: str = "dpsgd", epsilon: Any = None, **more: Any) -> Any:
    """A client's defence that states so."""
    return replace(made_up_row("clients.defence", name=name), epsilon=epsilon, **more)


def server(name: str, view: str = "updates", **more: Any) -> Any:
    """The server's rule."""
    return replace(made_up_row("aggregation", name=name, view=view), **more)


def make_history() -> dict[str, Any]:
    """Fifty rounds, the last ten under attack, with their scores."""
    rows, leakage, layers = [], {}, {}
    for r in range(50):
        knn = 0.5 + 0.006 * r if r % 5 == 4 else None
        rows.append(RoundRow(round=r, under_attack=r >= 40, loss=4 - 0.03 * r, knn=knn))
        leakage[r] = by_name({"similarity": 0.5 + 0.004 * r, "internal": 0.5 + 0.001 * r}, r)
        layers[r] = by_name({f"layer{i}": 0.5 + 0.001 * i * r for i in range(1, 5)}, r)
    return {"rounds": rows, "leakage": leakage, "layers": layers}


def client_info(i: int, generator: np.random.Generator) -> ClientInfo:
    """Client `i` of ten: two are defended, the last attacks."""
    own = defence(epsilon=claim(8.0), metrics={"clipped": 0.4}) if i < 2 else None
    classes = tuple(int(c) for c in generator.multinomial(16, np.ones(10) / 10))
    return ClientInfo(i, 16, "honest" if i < 9 else "active", own, classes)


def make_run(auc: float = 0.75, n: int = 112, m: int = 500, seed: int = 0) -> Evaluation:
    """Ten clients, four attacks, all controls, rounds and curves."""
    generator = np.random.default_rng(seed)

    def noise(rows: int, columns: int, mean: float, deviation: float) -> records.FloatArray:
        return mean + generator.normal(0, deviation, (rows, columns))

    features = {
        "features_members": noise(n, 3, 0.6, 1), "features_nonmembers": noise(m, 3, 0, 1),
        "feature_names": ("similarity", "loss", "maximum probability"),
    }  # fmt: skip
    combined = scored("combined", auc, n, m, seed + 2, **features)
    active = {"under_attack": True, "act": "ascent"}
    ascent = scored("ascent", auc, n, m, seed + 3, access="white_box", **active)
    zero = replace(
        ascent,
        name="ascent-zero",
        scores_members=ascent.scores_members + generator.normal(0, 0.3, n),
        scores_nonmembers=ascent.scores_nonmembers + generator.normal(0, 0.3, m),
    )
    attacks = (
        scored("similarity", auc - 0.02, n, m, seed + 1),
        combined,
        scored("internal", 0.5, n, m, seed + 4, access="white_box"),
        ascent,
    )
    untrained = [scored(a.name, 0.5, n, m, 50 + i) for i, a in enumerate(attacks)]
    labels = generator.integers(0, 10, n), generator.integers(0, 10, m)
    rise = 0.15 * np.arange(10)[:, None]
    return Evaluation(
        seed=seed,
        member_ids=np.arange(n),
        nonmember_ids=np.arange(n, n + m),
        member_client=np.arange(n) % 9,
        member_labels=labels[0],
        nonmember_labels=labels[1],
        attacks=attacks,
        controls={"untrained": untrained, "placebo": [scored("ascent", 0.5, n, m, 77)]},
        pairs=[Pair(ascent, zero, "the same rounds without ascent")],
        pixels=(generator.normal(0, 1, n), generator.normal(0, 1, m)),
        utility={"knn": Probe(0.81, 300), "linear": Probe(0.86, 300)},
        utility_untrained={"knn": Probe(0.62, 300), "linear": Probe(0.7, 300)},
        clients=[client_info(i, generator) for i in range(10)],
        **make_history(),
        curves=Curves(
            "ascent",
            np.arange(40, 50),
            *(rise + noise(10, n, 4, 0.4), rise + noise(10, m, 4.4, 0.4)),
            *(noise(10, n, 3.9, 0.4), noise(10, m, 4.3, 0.4)),
            *(noise(1, n, 4, 0.4)[0], noise(1, m, 4.4, 0.4)[0]),
            *(noise(1, n, 5.5, 0.5)[0], noise(1, m, 6.1, 0.5)[0]),
        ),
        notes=[Note("plugin", {"text": "Images 12 and 40 were byte-equal; one was removed."})],
        split={"members": 144, "nonmembers": 500, "known": 32, "test": 300},
        config={"dataset": "digits", "seed": seed, "train": {"lr": 0.06}},
        versions={"fedmia": "0.1.0", "torch": "2.15"},
        hardware={"cpu": "2 cores"},
        timing={"import_s": 3.2, "train_s": 60.0, "total_s": 63.2},
    )


def alone(run: Evaluation, *attacks: ScoredAttack, **more: Any) -> Evaluation:
    """The run with these attacks only, without controls and pairs."""
    return replace(run, **{"attacks": attacks, "controls": {}, "pairs": [], **more})


def naming(attack: ScoredAttack, clients: int, right: int) -> ScoredAttack:
    """Scores that name the client, the image's number modulo `clients`, of the first `right`."""
    ids, n, m = np.arange(clients), len(attack.scores_members), len(attack.scores_nonmembers)
    own = np.where(np.arange(n) < right, np.arange(n) % clients, np.arange(n) // clients)
    return replace(
        attack,
        named_members=own,
        client_ids=ids,
        by_client_members=1.0 * (own[:, None] == ids),
        by_client_nonmembers=np.random.default_rng(right).random((m, clients)),
    )


def suspect(client: int, suspicion: float | None, alarm: bool | None) -> Any:
    """How far a client stands out; of no suspicion it sent nothing."""
    values = (None,) * 4 if suspicion is None else (8, 35.25, -0.6875, 0.5)
    names = ("round", "norm", "cosine", "loss_change")
    numbers: Any = dict(zip(names, values, strict=True))
    return made_up_row("suspects", client=client, suspicion=suspicion, alarm=alarm, **numbers)


def make_everything(run: Evaluation) -> Evaluation:
    """The run with a part of every kind, 27 clients, and an audit's encoder and sweep."""
    first, combined, internal = (replace(a, rounds=(24,)) for a in run.attacks[:3])
    ascent = replace(run.attacks[3], rounds=(25, 26, 30))
    points = [
        records.SweepPoint("lpla", "known", 4, 4, scored("lpla", 0.6, 112, 500, 1)),
        records.SweepPoint("lpla", "known", 9, 9, scored("lpla", 0.7, 112, 500, 2)),
        records.SweepPoint("dsir", "known", 9, not_run="too <few>"),
    ]
    whole = records.SetScores(
        "ascent", records.ALONE, 8, np.ones(3), np.zeros(4),
        {"ascent-zero": (np.ones(3), np.ones(4))},
    )  # fmt: skip
    p_values = [compared(i, 0.01 * (i + 1)) for i in range(3)]
    posers = np.linspace(0.01, 1, 100).tolist()
    clients = [replace(c, id=i, last_round=i % 3) for i, c in enumerate([*run.clients[:9]] * 3)]
    outputs = [
        OutputRow(name="layer1", kind="map", shape=[8, 4, 4]),
        OutputRow(name="encoder", kind="projection", shape=[5]),
    ]
    pixels = {"size": 32, "mean": [0.5], "std": [0.25]}
    whole_client = {"unit": "client", "assumptions": "Unit: one client.", "rounds": 30}
    spent = claim(7.5, standing="guaranteed", **whole_client)
    placebo = replace(naming(first, 27, 2), scores_members=first.scores_nonmembers[:112])
    return replace(
        run,
        attacks=[naming(first, 27, 40), combined, internal, ascent],
        round=24,
        after_attack=({"knn": Probe(0.7, 300), "linear": Probe(None, 300)}, 30),
        controls={**run.controls, "placebo": [*run.controls["placebo"], placebo]},
        clients=clients,
        member_client=np.arange(112) % 27,
        sets=[whole, replace(whole, judged=records.MEAN), replace(whole, size=4)],
        inferences=[records.DatasetInferenceResults("dataset-inference", "p", p_values, posers)],
        rows={"suspects": [suspect(9, 12.5, True), suspect(2, 1.5, False), suspect(4, None, None)]},
        sweep=points,
        aggregation=server("dp-fedavg", "sums", epsilon=spent, metrics={"clip": 0.25}),
        drawn=False,
        encoder=replace(
            AUDIT, form="MoCo", loaded=76, dropped=["queue"], outputs=outputs, **pixels
        ),
        not_run={"lira": "needs shadows", "lpla": "<sets>", "rmia": "needs shadows"},
    )


TECHNICAL = re.compile(
    r"simultaneous|holm|interval|\bnull\b|p-value is|permut|bonferroni|\d \[", re.I
)


Case = tuple[str, Evaluation, Report]


def cases(run: Evaluation) -> list[tuple[str, Evaluation]]:
    """Verdict codes, and runs that have them."""

    def attack(auc: float, seed: int = 1, **more: object) -> Evaluation:
        return alone(run, scored("a", auc, 112, 500, seed, **more), pixels=None)

    half, high, low = attack(0.5), attack(0.8), attack(0.2)
    many = [scored(name, 0.5, 112, 500, seed) for name, seed in (("a", 1), ("b", 9))]
    placebo, same = ({"placebo": [scored("a", auc, 112, 500, 6)]} for auc in (0.5, 0.55))
    sent = attack(0.9, vantage="server", rounds=(24,))
    crafted = attack(0.9, under_attack=True, rounds=(25, 27, 30))
    after = ({"knn": Probe(0.7, 300)}, 30)
    untold = DatasetInferenceResults("dataset-inference", "", [compared(0, 0.0005, 20, 50)], [0.7])
    told = replace(untold, clients=[compared(0, 0.0005, 20, 50, 0.4)])
    probes = {"knn": Probe(0.5, 300), "linear": Probe(0.41, 300)}
    gone = {"health": GONE, "utility": probes}
    audit = guessed(1000, (50, 350, 700), (49, 315, 520))
    broken = defence(epsilon=claim(1.0, lower_bound=audit))
    refuted = {"clients": [replace(run.clients[0], defence=broken), *run.clients[1:]]}
    none = np.zeros(0)
    empty = dict.fromkeys(("member_ids", "member_client", "member_labels"), none)
    shift, turned = (one.attacks[0].sides for one in (high, low))
    return [
        ("leaks", run),
        ("leaks", replace(crafted, controls=placebo, round=24, after_attack=after)),
        ("leaks", replace(sent, controls=placebo, pretrain="pooled", interrupted=30)),
        ("leaks", replace(high, controls=placebo, encoder=AUDIT, drawn=False, rounds=(), **gone)),
        ("leaks", replace(half, inferences=[told])),
        ("leaks", replace(half, **refuted)),
        ("leaks-uncontrolled", high),
        ("leaks-uncontrolled", replace(high, interrupted=7, failure="a client failed")),
        ("leaks-uncontrolled", replace(half, inferences=[untold])),
        ("not-established", half),
        ("not-established", alone(run, *many)),
        ("not-established", low),
        ("not-established", replace(attack(0.6, 3), controls=same)),
        ("untested", alone(run)),
        ("untested", alone(run, not_run={"a": "no model.", "b": "no model.", "c": "no time"})),
        (
            "untested",
            replace(half, attacks=[replace(half.attacks[0], scores_members=none)], **empty),
        ),
        ("collapsed", replace(half, **gone)),
        ("shift", replace(high, pixels=shift)),
        ("shift", replace(half, pixels=turned, **refuted)),
        ("control-failed", replace(high, controls={"untrained": high.attacks})),
        ("control-failed", replace(high, controls={"placebo": low.attacks})),
        ("no-verdict", replace(high, interrupted=0)),
        ("no-verdict", replace(high, interrupted=0, failure="a client failed")),
    ]


def terminal(report: Report, width: int = 80) -> list[str]:
    """The lines that the command line prints of a report."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setitem(os.environ, "COLUMNS", str(width))
        show(report, None, json=False, quiet=False)
    return printed.getvalue().splitlines()


def said(report: Report) -> str:
    """The same, a line a sentence."""
    return "\n".join(line.rstrip() for line in terminal(report, 5000))


def opened(folder: Path, report: Report, run: Evaluation | None = None) -> Run:
    """The folder of a run of this report, opened again; with its scores, where they are told."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(STORED / "config.yaml", folder)
    if run is None:
        (folder / "report.json").write_text(json_text(report), encoding="utf-8")
    else:
        write_report(folder, run, report, {}, build_whole(run))
    return open_run(folder)


def numbers(folder: Path) -> list[dict[str, str]]:
    """The rows of table.csv."""
    with (folder / "table.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def section(html: str, name: str) -> str:
    """A section of a page, by its id."""
    return html.partition(f'<section id="{name}">')[2].partition("</section>")[0]


def tables(html: str) -> list[list[list[str]]]:
    """The texts of the cells of each table, its head first."""

    def texts(row: str) -> list[str]:
        cells = re.findall(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", row, re.S)
        return [" ".join(unescape(re.sub("<[^>]*>", " ", cell)).split()) for cell in cells]

    found = re.findall(r"<table.*?</table>", html, re.S)
    return [[texts(row) for row in re.findall(r"<tr.*?</tr>", one, re.S)] for one in found]


def card(report: Report) -> str:
    """The sentences for a model card."""
    with TemporaryDirectory() as folder:
        return opened(Path(folder), report).model_card


def notebook(report: Report) -> str:
    """The run as Jupyter shows it."""
    with TemporaryDirectory() as folder:
        return opened(Path(folder), report)._repr_html_()


def gate(folder: Path, conditions: str, *flags: str) -> Ran:
    """A finished run shown again, under these conditions."""
    return fedmia(["simulate", "--resume", str(folder), "--quiet", "--fail-on", conditions, *flags])


def outcomes(ran: Ran) -> list[tuple[bool, str]]:
    """Whether each condition failed, and why or why not, of what was printed."""
    found = []
    for line in ran.err.splitlines():
        _, colon, outcome = line.partition(": gate: ")
        if colon:
            _, result, why = outcome.split(": ", 2)
            found.append((result == "failed", why))
    return found


class Page(HTMLParser):
    """A page whose tags are closed in order: its text line by line, what stands open of it without
    boxes, tables and lists of terms, and what it would load."""

    VOID = {"meta", "img", "br"}
    BLOCKS = {"p", "h1", "h2", "h3", "li", "tr", "dd", "summary", "figcaption", "strong", "title"}
    FOLDED = {"details", "div", "dl", "style", "figcaption", "nav", "head"}

    def __init__(self, document: str) -> None:
        super().__init__()
        self.within, self.loads, self.tags = list[str](), list[str](), set[str]()
        self.parts: list[tuple[bool, str]] = []
        self.feed(document)
        self.close()
        assert self.within == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        links = (value or "" for name, value in attrs if name in ("src", "href"))
        self.loads += [link for link in links if not link.startswith("#")]
        self.handle_data(" ")
        if tag not in self.VOID:
            self.within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.within.pop() == tag
        end = "\n" if tag in self.BLOCKS else " | " if tag in ("td", "th") else " "
        self.handle_data(end if tag != "dt" else ": ")

    def handle_data(self, data: str) -> None:
        plain = data if data in ("\n", " | ") else data.replace("\n", " ")
        if "style" not in self.within:
            self.parts.append((not self.FOLDED & {*self.within}, plain))

    def text(self, *, opened: bool = False) -> str:
        """All of it, or what a reader sees before anything is unfolded."""
        whole = "".join(part for is_open, part in self.parts if is_open or not opened)
        lines = (" ".join(line.split()) for line in whole.splitlines())
        return "\n".join(line for line in lines if line.strip(" |"))


def shown(report: Report, figures: Mapping[str, bytes] | None = None) -> tuple[str, str]:
    """What terminal and page say, each in one line."""
    texts = "\n".join(terminal(report)), Page(page(report, figures or {})).text()
    first, second = (" ".join(text.split()) for text in texts)
    return first, second


@pytest.fixture(name="run", scope="session")
def _run() -> Evaluation:
    return make_run()


@pytest.fixture(scope="session")
def report(run: Evaluation) -> Report:
    """Of the run; read only."""
    return build_report(run)


@pytest.fixture(scope="session")
def everything(run: Evaluation) -> Evaluation:
    return make_everything(run)


@pytest.fixture(scope="session")
def whole(everything: Evaluation) -> Report:
    """The report of everything; read only."""
    return build_report(everything)


@pytest.fixture(scope="session")
def of_codes(run: Evaluation) -> list[Case]:
    """Reports of each code, of some codes several, with the scores behind them; read only."""
    return [(code, one, build_report(one)) for code, one in cases(run)]


@pytest.fixture(scope="session")
def everything_html(whole: Report) -> str:
    return page(whole, {})
