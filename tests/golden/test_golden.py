"""Reports of small runs, committed: whatever moves in the code, no number and no word does.

They are computed in float64. There the last digits, in which kinds of processors differ, stay many
orders under every difference of two scores in at most 50 training steps, so that one report holds
everywhere. `python -m tests.golden.test_golden` writes them anew; the commit that does so says why.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from research.papers.__main__ import main as papers
from tests.auditing.conftest import sides, textures, write
from tests.commands import call, fedmia
from tests.evaluation import test_later as later
from tests.pictures import unpainted

HERE = Path(__file__).resolve().parent
SMALL = (
    "--rounds 4 --train.local_epochs 1 --model.width 4 --split.members 24 "
    "--split.nonmembers 60 --split.known 8 --split.test 20 --federation.snapshots 2 --device cpu "
    "--attack.similarity.views 6 --attack.combined.views 6 --attack.ascent-static.pairs 1 "
    "--train.batch_size 8 --train.lr 0.06 --federation.attacked_rate schedule "
)
TINY = (
    "--rounds 3 --train.local_epochs 1 --model.width 4 --split.members 24 --split.nonmembers 40 "
    "--split.known 6 --split.test 20 --device cpu --train.batch_size 8 --train.lr 0.06 "
    "--attack.similarity.views 3 "
)
RUNS = {
    "active": "simulate --clients 3 --attacker active --strategy fedprox --strategy.mu 0.1 "
    "--defense logistic --defended-clients 0 " + SMALL,
    # Of a client that is not in every cohort and takes two steps a round; defences whose clients
    # differ, and the placebo.
    "passive": "simulate --clients 6 --attacker passive --malicious 2 --partition iid "
    "--federation.participation 0.6 --federation.snapshots 3 --federation.placebo true "
    "--defense logistic,laplace --defense.logistic.clients 0,3 --defended-clients 1-2 "
    "--pretrain public --pretrain-epochs 1 --split.public 8 --sweep known=3 --prior 0.1 "
    "--attacks similarity,lpla,loss-slope,lira-rounds,grad-norm "
    "--attack.grad-norm.negatives queue --seed 8 " + TINY.replace("batch_size 8", "batch_size 2"),
    "server": "simulate --clients 4 --attacker server --strategy fedema --partition.alpha 2 "
    "--federation.participation 0.75 --federation.snapshots 2 --federation.keep_updates 2 "
    "--defense dpsgd,logistic --defense.dpsgd.clients 1,2 --defended-clients 0 "
    "--attacks similarity,all-for-one,loss-slope --attack.all-for-one.negatives queue " + TINY,
    "rehearsed": "simulate --clients 3 --attacker active --attack-rounds 2 --partition.alpha 2 "
    "--strategy fedprox --strategy.mu 0.1 --federation.snapshots 1 --defense logistic "
    "--defended-clients 1 --attacks similarity,internal,ascent,ascent-static "
    "--attack.ascent.server known --attack.ascent.negatives queue --attack.ascent.pairs 1 "
    "--attack.ascent.steps 1 --attack.ascent-static.pairs 1 " + TINY.replace("known 6", "known 14"),
    # Images of clients that joined after round 2 are its non-members.
    "later": "audit --federation REC --owners owners.csv --nonmembers later --threads 1 "
    f"--members npz:every.npz {later.ENCODER} {later.FLAGS} --attacks similarity,internal,lpla "
    "--attack.similarity.views 3",
    "audit": "audit --encoder tests.auditing.brought:tiny --members npz:members.npz --nonmembers "
    "npz:nonmembers.npz --shadows 2 --shadow.epochs 2 --shadow.model smallnet --shadow.knowledge "
    "data --sweep known=3,6 --threads 1 --device cpu --attack.similarity.views 4 --attacks "
    "similarity,internal,combined,encodermi-t,lpla,lira,rmia,baseline-e,baseline-b,lira-rounds,"
    "ascent",
    "head": "papers head --encoder tests.auditing.brought:grey --threads 1 --device cpu "
    "--images 40 --epochs 4 --seed 7 --seeds 2 --samples 2 --draws 2 --epsilons 2,40 "
    "--mechanisms logistic,laplace,gaussian",
}
# Commands on what a run left in the folder RUN.
AFTER = {
    "rehearsed": {"run": "papers run RUN"},
    "passive": {
        "passive_audit": "audit --federation RUN/recording --threads 1 --device cpu "
        "--attacks similarity,loss-slope,grad-norm --attack.similarity.views 3 "
        "--attack.grad-norm.negatives queue --seed 8"
    },
    "server": {
        "server_audit": "audit --federation RUN/recording --threads 1 --device cpu "
        "--attacks similarity,all-for-one --attack.similarity.views 3 "
        "--attack.all-for-one.negatives queue"
    },
}
VARYING = ("timing", "versions", "hardware")  # with the clock, the packages, the machine


@contextlib.contextmanager
def float64() -> Iterator[None]:
    """What torch computes inside is float64, where the code casts to float32 too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with patch.object(Tensor, "float", Tensor.double):
            yield
    finally:
        torch.set_default_dtype(before)


def printed(line: str) -> dict[str, Any]:
    """What `--json` prints."""
    own = line.removeprefix("papers ")
    ran = fedmia(f"{line} --json") if own == line else call(papers, f"{own} --json")
    assert ran.code == 0, ran.err
    report: dict[str, Any] = json.loads(ran.out.replace(f"{Path.cwd()}/", ""))
    return {k: v for k, v in report.items() if k not in VARYING}


def reported(name: str) -> dict[str, dict[str, Any]]:
    """The reports of a run by name, in an empty folder that holds the audit's images, and what
    other commands say of it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), float64(), unpainted():
        sides(Path("."))
        if name == "later":
            every, trained = textures(later.IMAGES), Path("every.npz")
            write(trained, every.images, every.labels)
            later.record(Path("REC"), strength=0.15)  # at 1 all views are one, and scores tie
            later.table(Path("owners.csv"), "client", later.OWNERS)
        after = AFTER.get(name, {})
        first = {name: printed(RUNS[name] + " --out RUN" * bool(after))}
        return first | {one: printed(line) for one, line in after.items()}


def close(got: float, want: float, where: str) -> bool:
    """Whether two numbers differ by no more than the last digit that a report prints: the sixth
    decimal, of a threshold the sixth significant digit. It may round one way or the other."""
    if where.rpartition(".")[2].startswith("threshold"):
        return math.isclose(got, want, rel_tol=1.01e-5)
    return math.isclose(got, want, rel_tol=1e-7, abs_tol=1.01e-6)


def differences(got: Any, want: Any, where: str = "report") -> Iterator[str]:
    """Every place in which two reports differ, order of keys included."""
    if isinstance(want, dict) and isinstance(got, dict):
        if list(want) != list(got):
            yield f"{where}: keys {list(got)}, golden {list(want)}"
        for key in (k for k in want if k in got):
            yield from differences(got[key], want[key], f"{where}.{key}")
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for i, pair in enumerate(zip(got, want, strict=True)):
            yield from differences(*pair, f"{where}[{i}]")
    elif isinstance(want, float) and isinstance(got, int | float):
        if not close(got, want, where):
            yield f"{where}: {got}, golden {want}"
    elif got != want:
        yield f"{where}: {got!r}, golden {want!r}"


def golden(name: str) -> Path:
    """The report committed."""
    return HERE / f"{name}.json"


QUICK = ("passive", "server", "rehearsed", "later", "head")
every_run = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in RUNS]
)


@every_run
def test_report__is_the_golden_one(name: str) -> None:
    for one, report in reported(name).items():
        want = json.loads(golden(one).read_text(encoding="utf-8"))
        assert not list(differences(report, want))[:20]


def trembling(layer: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The layer, its outputs off by up to 1e-12 of themselves: thousands of times what processors
    differ by."""

    def off(*args: Any, **options: Any) -> Tensor:
        out = layer(*args, **options)
        return out * (1 + 1e-12 * torch.cos(1e7 * out.detach()))

    return off


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_report__hangs_on_no_last_digit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for layer in ("conv2d", "linear", "batch_norm", "group_norm"):
        monkeypatch.setattr(F, layer, trembling(getattr(F, layer)))
    for one, report in reported(name).items():
        want = json.loads(golden(one).read_text(encoding="utf-8"))
        assert not list(differences(report, want))[:20]


def test_differences__sees_a_changed_number_word_and_key() -> None:
    want = {"a": [1.0, {"b": "x", "threshold": -0.0007}], "c": 2}
    near = {"a": [1.000001, {"b": "x", "threshold": -0.000700001}], "c": 2}
    assert not list(differences(near, want))
    far = {"a": [1.000002, {"b": "y", "threshold": -0.0007001}], "d": 2}
    assert list(differences(far, want)) == [
        "report: keys ['a', 'd'], golden ['a', 'c']",
        "report.a[0]: 1.000002, golden 1.0",
        "report.a[1].b: 'y', golden 'x'",
        "report.a[1].threshold: -0.0007001, golden -0.0007",
    ]


if __name__ == "__main__":
    for name in RUNS:
        for one, report in reported(name).items():
            text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
            golden(one).write_text(text, encoding="utf-8")
