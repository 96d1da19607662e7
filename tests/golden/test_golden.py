"""Reports of three small runs, committed: whatever moves in the code, no number and no word does.

At most 50 training steps each, so that rounding cannot grow: a tolerance of 1e-4 hides nothing.
`python -m tests.golden.test_golden` writes them anew; the commit that does so says why.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n == "server" else ()) for n in RUNS]
)
def test_report__is_the_golden_one(name: str) -> None:
    want = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    found = list(differences(reported(RUNS[name]), want))
    assert not found, "\n".join(found[:20])


def test_differences__sees_a_changed_number_word_and_key() -> None:
    want = {"a": [1.0, {"b": "x"}], "c": 2}
    assert not list(differences({"a": [1.00005, {"b": "x"}], "c": 2}, want))
    assert list(differences({"a": [1.001, {"b": "y"}], "d": 2}, want)) == [
        "report: keys ['a', 'd'], golden ['a', 'c']",
        "report.a[0]: 1.001, golden 1.0",
        "report.a[1].b: 'y', golden 'x'",
    ]


if __name__ == "__main__":
    for name, line in RUNS.items():
        text = json.dumps(reported(line), indent=1, ensure_ascii=False) + "\n"
        (HERE / f"{name}.json").write_text(text, encoding="utf-8")
