"""What befalls a client of a deployment: a SuperLink with TLS and keys, two nodes as processes."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

from _ending import POLICIES, judge_fault, read, run  # beside this script

from tests.flower.deployed import ROOT, Deployment, block

KINDS = ("raise", "memory", "die", "nan", "shape", "names", "foreign")
FLAGS = (
    "--config smoke --clients 2 --rounds 3 --attacker none --attacks similarity "
    "--attack.similarity.views 4 --model.width 4 --split.members 32 --split.nonmembers 60 "
    "--split.known 8 --split.test 20 --device cpu "
)
PATIENCE = 600.0  # seconds in which a command ends on a busy machine


def deployed_faults(folder: Path) -> list[dict[str, Any]]:
    """Every kind of fault under every policy, in runs one after the other on the same nodes."""
    here = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
    rows = []
    with Deployment(folder) as flower:
        flower.env["PYTHONPATH"] += os.pathsep + here
        flower.do(block("openssl req"), timeout=PATIENCE)
        flower.start(block("flower-superlink --ssl"), "link.log")
        flower.answers("18000", "link.log", PATIENCE)
        flower.do(block("root-certificates = "))
        flower.do(block("ssh-keygen"), timeout=PATIENCE)
        for n in "01":
            flower.start(block(f"folder='state{n}'\""), f"node{n}.log")
        for number, (kind, policy) in enumerate(itertools.product(KINDS, POLICIES)):
            rows.append(one(flower, folder / str(number), kind, policy))
    return rows


def one(flower: Deployment, folder: Path, kind: str, policy: str) -> dict[str, Any]:
    """A run with the fault in round 2, and what is wrong with how it ended."""
    folder.mkdir()
    when = "after" if kind in ("nan", "shape", "names", "foreign") else "during"
    done = folder / "done"
    flags = (
        f"{FLAGS} --on-failure {policy} --defense faulty:Fault --defended-clients 1 "
        f"--defense.kind {kind} --defense.when {when} --defense.done {done}"
    )
    (folder / "happened").touch()
    clean_flags = flags.replace(str(done), str(folder / "happened"))
    code, errors, _ = run([*clean_flags.split(), "--quiet", "--out", str(folder / "CLEAN")])
    clean = read(folder / "CLEAN")
    if code or clean is None:
        raise RuntimeError(errors)
    began = time.perf_counter()
    command = block("flwr run . deploy --stream\n").rstrip()
    said = flower.do(
        f"""{command} -c "arguments='{flags}' out='{folder / "RUN"}'" """, cwd=ROOT,
        timeout=PATIENCE,
    )  # fmt: skip
    listed = flower.do("flwr list deploy --format json", timeout=PATIENCE)
    status = json.loads(listed)["runs"][0]["status"]
    code = {"finished:completed": 0, "finished:failed": 1}.get(status, -1)
    report = read(folder / "RUN")
    wrong = [] if done.exists() else ["the fault did not happen"]
    wrong += ["no report"] if report is None else judge_fault(report, policy, clean, code)
    wrong += [f"a traceback: {said[-500:]}"] if "Traceback" in said else []
    result = {
        "backend": "deployment", "kind": kind, "when": when, "policy": policy, "code": code,
        "seconds": round(time.perf_counter() - began, 1), "wrong": wrong,
    }  # fmt: skip
    print(result, flush=True)
    return result
