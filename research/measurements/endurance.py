"""Does a run end well whatever befalls it? Injected faults, and kill -9 at random moments.

Each fault befalls client 1 of four in round 2 of three, once, before, during or after its training,
under each policy, on the inline and on the Ray backend; some befall a node of a deployment. Others
befall the process while it scores or writes, its disk, or the power of its machine. Asked of every
run: it ends in time; and its report is that of the same run without the fault (`retry`,
`--resume`), or that of the rounds before (`stop`), or says who is gone and counts none of its
images (`drop`).

    python research/measurements/endurance.py [--only inline,ray,process,power,deployment,kills]
        [--kills 20] [--out research/results/endurance.json]

With `--only`, what `--out` holds of the other parts stays. Writes the JSON and, beside it, the
table as Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from _ending import POLICIES, Report, judge_fault, read, run  # beside this script
from _process_faults import ACTIVE, power_cuts, process_faults

from fedmia.report.figures import draw
from fedmia.runtime.environment import describe
from fedmia.storage.runfolder import RunFolder

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE.parent / "results" / "endurance.json"
TINY = (
    "--clients 4 --rounds 3 --train.local_epochs 1 --model.width 4 --split.members 32 "
    "--split.nonmembers 60 --split.known 8 --split.test 20 --device cpu --federation.snapshots 1 "
    "--attacks similarity --attack.similarity.views 4 --quiet "
)
OUTRIGHT, SENT = ("raise", "memory", "hang", "die"), ("nan", "shape", "names", "foreign")
PATIENCE = 60.0  # seconds in which a run with a fault ends
TIMEOUT = {"inline": 3, "ray": 8}  # seconds that a client may work
PARTS = ("inline", "ray", "process", "power", "deployment", "kills")


def cases(backend: str) -> Iterator[tuple[str, str]]:
    """Kind and moment of every fault; a client of the inline backend is no process to be killed."""
    for kind, when in itertools.product(OUTRIGHT, ("before", "during", "after")):
        if kind != "die" or backend == "ray":
            yield kind, when
    for kind in SENT:
        yield kind, "after"


def flags(backend: str, more: str) -> list[str]:
    """Of a run with a client that may fail."""
    policy = f"--backend {backend} --client-timeout {TIMEOUT[backend]}"
    address = " --ray-address auto" if backend == "ray" else ""
    return shlex.split(f"{TINY} {policy}{address} --defense faulty:Fault {more}")


def one_fault(
    folder: Path, backend: str, kind: str, when: str, policy: str, clean: Report
) -> dict[str, Any]:
    """A run with the fault, and what is wrong with how it ended, or nothing."""
    out, done = folder / "RUN", folder / "done"
    more = (
        f"--defended-clients 1 --defense.kind {kind} --defense.when {when} --defense.done {done} "
        f"--on-failure {policy} --out {out}"
    )
    code, errors, seconds = run(flags(backend, more))
    wrong = []
    if not done.exists():
        wrong.append("the fault did not happen")
    if seconds > PATIENCE:
        wrong.append("it hung")
    if errors.count("\n") > 1 or "Traceback" in errors:
        wrong.append("it printed more than one line")
    report = read(out)
    if report is None:
        wrong.append("no report")
    else:
        wrong += judge_fault(report, policy, clean, code)
    row = {"backend": backend, "kind": kind, "when": when, "policy": policy, "code": code}
    return row | {"seconds": round(seconds, 1), "wrong": wrong}


def client_faults(backend: str, folder: Path) -> list[dict[str, Any]]:
    """Every fault of a client under every policy."""
    (folder / "happened").touch()
    more = f"--defended-clients 1 --defense.done {folder / 'happened'} --out {folder / 'CLEAN'}"
    code, errors, _ = run(flags(backend, more))
    clean = read(folder / "CLEAN")
    if code or clean is None:
        raise RuntimeError(errors)
    rows = []
    for number, ((kind, when), policy) in enumerate(itertools.product(cases(backend), POLICIES)):
        own = folder / str(number)
        own.mkdir()
        rows.append(one_fault(own, backend, kind, when, policy, clean))
        print(rows[-1], flush=True)
    return rows


@contextlib.contextmanager
def cluster(needed: bool) -> Iterator[None]:
    """A Ray cluster that the runs join, so that each does not start its own."""
    if not needed:
        yield
        return
    path = os.pathsep.join([str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")])
    started = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--num-cpus", "2"]
    with tempfile.TemporaryFile() as log:
        subprocess.run(
            [*started, "--port", "0", "--disable-usage-stats", "--include-dashboard", "false"],
            check=True, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield
    finally:
        stop = [str(Path(sys.executable).parent / "ray"), "stop", "--force"]
        subprocess.run(stop, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def kills(count: int, folder: Path, seed: int = 0) -> list[dict[str, Any]]:
    """kill -9 at random moments of a whole process, then `--resume` until the end."""
    command = [sys.executable, "-m", "fedmia.simulate"]
    began = time.perf_counter()
    subprocess.run(
        [*command, *shlex.split(ACTIVE), "--out", str(folder / "CLEAN")],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    whole, clean, rows = time.perf_counter() - began, read(folder / "CLEAN"), []
    moments = random.Random(seed)
    for number in range(count):
        out, at = folder / f"kill-{number}", moments.uniform(0.0, whole)
        flags_given = [*shlex.split(ACTIVE), "--out", str(out)]
        running = subprocess.Popen(
            [*command, *flags_given], start_new_session=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(at)
        ended = running.poll() is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        index = out / "checkpoint" / "index.json"
        generation = json.loads(index.read_text())["generation"] if index.is_file() else 0
        # Before the folder was made there is nothing to go on with: the same command again.
        begun = RunFolder(out).has_settings()
        again = ["--resume", str(out), "--quiet"] if begun else flags_given
        code = subprocess.run(
            [*command, *again], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        ).returncode
        same = code == 0 and read(out) == clean
        rows.append({
            "at_s": round(at, 2), "of_s": round(whole, 2), "checkpoint": generation,
            "begun": begun, "over_before": ended, "same_report": same,
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def table(results: dict[str, Any]) -> str:
    """Markdown: faults by kind, moment and backend; then the kills."""
    lines = [
        "| fault | moment | policy | backend | runs | ended as it should |",
        "|---|---|---|---|---|---|",
    ]
    rows = results["faults"]
    keys = sorted({(r["kind"], r["when"], r["backend"]) for r in rows})
    for kind, when, backend in keys:
        own = [r for r in rows if (r["kind"], r["when"], r["backend"]) == (kind, when, backend)]
        policies = ", ".join(dict.fromkeys(r["policy"] for r in own))
        well = sum(not r["wrong"] for r in own)
        lines.append(f"| {kind} | {when} | {policies} | {backend} | {len(own)} | {well} |")
    well = sum(not r["wrong"] for r in rows)
    lines += ["", f"{well} of {len(rows)} faults ended as they should.", ""]
    if results["kills"]:
        same = sum(r["same_report"] for r in results["kills"])
        lines.append(
            f"kill -9 at {len(results['kills'])} random moments, resumed: {same} reports are that "
            "of the run that was left alone."
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts to measure")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    parts = args.only.split(",")
    sys.path[:0] = [str(HERE), str(ROOT)]  # where faulty.py and the tests' disk lie
    from _deployed_faults import deployed_faults  # it needs what tests of deployments need

    results: dict[str, Any] = {"faults": [], "kills": []}
    if args.out.is_file():
        old = json.loads(args.out.read_text(encoding="utf-8"))
        results["faults"] = [r for r in old["faults"] if r.get("part", r["backend"]) not in parts]
        results["kills"] = [] if "kills" in parts else old["kills"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in parts:
            (folder / name).mkdir()
        with patch.object(draw, "draw_all", lambda scores, report: {}):
            with cluster("ray" in parts):
                for backend in {"inline", "ray"}.intersection(parts):
                    results["faults"] += client_faults(backend, folder / backend)
            for name, measure in (
                ("process", process_faults), ("power", power_cuts), ("deployment", deployed_faults),
            ):  # fmt: skip
                if name in parts:
                    rows = measure(folder / name)
                    results["faults"] += [{**row, "part": name} for row in rows]
        if "kills" in parts:
            results["kills"] = kills(args.kills, folder / "kills")
    results |= {"setting": {"faults": TINY, "kills": ACTIVE}, **describe()}
    args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    args.out.with_suffix(".md").write_text(text := table(results), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
