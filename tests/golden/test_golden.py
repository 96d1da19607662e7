"""Reports of three small runs, committed: whatever moves in the code, no number and no word does.

At most 50 training steps each, so that rounding hardly grows: a tolerance of 1e-4 hides nothing.
Yet two scores may change places from one kind of processor to another, so each kind has a report of
its own, and one must be met. `python -m tests.golden.test_golden` writes this processor's anew, and
the words of the others'; the commit that does so says why.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedmia import audit, simulate
from tests.auditing.conftest import sides

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-4
SMALL = (
    "--rounds 4 --train.local_epochs 1 --model.width 4 --split.members 24 "
    "--split.nonmembers 60 --split.known 8 --split.test 20 --federation.snapshots 2 --device cpu "
    "--attack.similarity.views 6 --attack.combined.views 6 --attack.ascent-static.pairs 1 "
    "--train.batch_size 8 --train.lr 0.06 --federation.attacked_rate schedule "
)
RUNS = {
    "active": "simulate --clients 3 --attacker active --strategy fedprox --strategy.mu 0.1 "
    "--defense logistic --defended-clients 0 " + SMALL,
    "server": "simulate --clients 4 --attacker server --strategy fedema --partition dirichlet "
    "--partition.alpha 1 --defense dpsgd --defended-clients 1-2 --attacks main,all-for-one,lpla "
    + SMALL,
    "audit": "audit --encoder tests.auditing.brought:tiny --members npz:members.npz --nonmembers "
    "npz:nonmembers.npz --shadows 2 --shadow.epochs 2 --shadow.model smallnet --shadow.knowledge "
    "data --sweep known=3,6 --threads 1 --device cpu --attack.similarity.views 4 --attacks "
    "similarity,internal,combined,encodermi-t,lpla,lira,rmia,baseline-e,baseline-b,lira-rounds,"
    "ascent",
}
VARYING = ("timing", "versions", "hardware")  # with the clock, the packages, the machine


def reported(line: str) -> dict[str, Any]:
    """What `--json` prints, in an empty folder that holds the audit's images."""
    command, *flags = shlex.split(line)
    main = {"simulate": simulate.main, "audit": audit.main}[command]
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        sides(Path("."))
        with contextlib.redirect_stdout(printed):
            code = main([*flags, "--json"])
    assert code == 0
    found: dict[str, Any] = json.loads(printed.getvalue())
    return {k: v for k, v in found.items() if k not in VARYING}


def differences(got: Any, want: Any, where: str = "report") -> Iterator[str]:
    """Every place in which two reports differ, order of keys included."""
    if isinstance(want, dict) and isinstance(got, dict):
        if list(want) != list(got):
            yield f"{where}: keys {list(got)}, golden {list(want)}"
        for key in want.keys() & got.keys():
            yield from differences(got[key], want[key], f"{where}.{key}")
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for i, pair in enumerate(zip(got, want, strict=True)):
            yield from differences(*pair, f"{where}[{i}]")
    elif isinstance(want, float) and isinstance(got, int | float):
        if not math.isclose(got, want, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{where}: {got}, golden {want}"
    elif got != want:
        yield f"{where}: {got!r}, golden {want!r}"


def golden(name: str) -> dict[str, Any]:
    """The reports committed, by the instructions of the processor that made them."""
    return {
        file.suffixes[0].removeprefix("."): json.loads(file.read_text(encoding="utf-8"))
        for file in HERE.glob(f"{name}.*.json")
    }


def carried(new: Any, other: Any) -> Any:
    """`new` with the numbers of another processor's report where it has some."""
    if isinstance(new, dict) and isinstance(other, dict):
        return {k: carried(v, other.get(k)) for k, v in new.items()}
    if isinstance(new, list) and isinstance(other, list) and len(new) == len(other):
        return [carried(*pair) for pair in zip(new, other, strict=True)]
    if isinstance(new, str) and isinstance(other, str):  # a sentence may hold figures
        figure = re.compile(r"[+-]?\d[\d.]*")
        return other if figure.sub("", new) == figure.sub("", other) else new
    return other if isinstance(new, float) and isinstance(other, float) else new


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "active" else pytest.mark.slow) for n in RUNS]
)
def test_report__is_the_golden_one(name: str) -> None:
    got = reported(RUNS[name])
    found = {kind: list(differences(got, want)) for kind, want in golden(name).items()}
    least = min(found.values(), key=len)
    assert not least, f"{list(found)}, {kind()} here\n" + "\n".join(least[:20])


def test_differences__sees_a_changed_number_word_and_key() -> None:
    want = {"a": [1.0, {"b": "x"}], "c": 2}
    assert not list(differences({"a": [1.00005, {"b": "x"}], "c": 2}, want))
    assert list(differences({"a": [1.001, {"b": "y"}], "d": 2}, want)) == [
        "report: keys ['a', 'd'], golden ['a', 'c']",
        "report.a[0]: 1.001, golden 1.0",
        "report.a[1].b: 'y', golden 'x'",
    ]


def test_carried__takes_words_of_one_and_numbers_of_the_other() -> None:
    new = {"a": [1.5, "new", 2], "b": 0.5, "c": 3.5, "d": "by +0.5"}
    other = {"a": [1.25, "old", 1], "c": 3.25, "d": "by -1.25"}
    assert carried(new, other) == {"a": [1.25, "new", 2], "b": 0.5, "c": 3.25, "d": "by -1.25"}


def kind() -> str:
    """The processor's instructions that torch uses: AVX2, AVX512, .."""
    return torch.backends.cpu.get_cpu_capability()


if __name__ == "__main__":
    for name, line in RUNS.items():
        made, held = reported(line), golden(name)
        for other in held.keys() | {kind()}:
            report = made if other == kind() else carried(made, held[other])
            text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
            (HERE / f"{name}.{other}.json").write_text(text, encoding="utf-8")
