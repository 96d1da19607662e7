"""Does a run end well whatever befalls it? Injected faults, and kill -9 at random moments.

Each fault befalls client 1 of four in round 2 of three, once, before, during or after its training,
under each policy, on the inline and on the Ray backend; others befall the process while it scores
or writes. Asked of every run: it ends in time; and its report is that of the same run without the
fault (`retry`, `--resume`), or that of the rounds before (`stop`), or says who is gone and counts
none of its images (`drop`).

    python benchmarks/endurance.py [--only faults|kills] [--backends inline,ray] [--kills 20]
        [--out benchmarks/results/endurance.json]

Writes the JSON and, beside it, the table as Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import io
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

from fedmia.cli.command import DISK_FAILED
from fedmia.report.figures import draw
from fedmia.runtime.environment import describe
from fedmia.simulate import main as simulate

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "endurance.json"
TINY = (
    "--clients 4 --rounds 3 --train.local_epochs 1 --model.width 4 --split.members 32 "
    "--split.nonmembers 60 --split.known 8 --split.test 20 --device cpu --federation.snapshots 1 "
    "--attacks similarity --attack.similarity.views 4 --quiet "
)
ACTIVE = (
    "--config smoke --clients 4 --attacker active --strategy scaffold --model.width 4 "
    "--split.members 32 --split.nonmembers 60 --split.known 8 --split.test 20 --device cpu --quiet "
)
OUTRIGHT, SENT = ("raise", "memory", "hang", "die"), ("nan", "shape", "names", "foreign")
POLICIES = ("stop", "retry", "drop")
PATIENCE = 60.0  # seconds in which a run with a fault ends
TIMEOUT = {"inline": 3, "ray": 8}  # seconds that a client may work
Report = dict[str, Any]


def cases(backend: str) -> Iterator[tuple[str, str]]:
    """Kind and moment of every fault; a client of the inline backend is no process to be killed."""
    for kind, when in itertools.product(OUTRIGHT, ("before", "during", "after")):
        if kind != "die" or backend == "ray":
            yield kind, when
    for kind in SENT:
        yield kind, "after"


def run(arguments: Sequence[str]) -> tuple[int, str, float]:
    """Exit code, what was printed on standard error, and seconds of a run in this process."""
    errors, began = io.StringIO(), time.perf_counter()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = simulate(list(arguments))
    return code, errors.getvalue(), time.perf_counter() - began


def read(out: Path) -> Report | None:
    """A report less what clocks and folders tell, None where there is none."""
    if not (out / "report.json").is_file():
        return None
    report: Report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    for name in ("timing", "config", "versions", "hardware"):
        del report[name]
    return report


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


def judge_fault(report: Report, policy: str, clean: Report, code: int) -> list[str]:
    """What is wrong with the report of a run with one fault."""
    faults = [(f["client"], f["round"], f["action"]) for f in report["faults"]]
    action = {"stop": "stopped", "retry": "retried", "drop": "dropped"}[policy]
    wrong = [] if faults == [(1, 2, action)] else [f"faults told: {faults}"]
    if code != (1 if policy == "stop" else 0):
        wrong.append(f"exit code {code}")
    expected = {"faults": [], "notes": []}  # of the fault itself
    if policy == "retry" and {**report, **expected} != {**clean, **expected}:
        wrong.append("other numbers than without the fault")
    if policy == "stop":
        if [r["round"] for r in report["rounds"]] != [1] or report["interrupted"] != 1:
            wrong.append("not the finished round alone")
        elif report["rounds"][0]["loss"] != clean["rounds"][0]["loss"]:
            wrong.append("another loss in the finished round")
    if policy == "drop":
        # All of client 1's images are out of it, as members and in the table of clients.
        lost = clean["attacks"][0]["n_members"] - report["attacks"][0]["n_members"]
        own = next(c["n_members"] for c in clean["clients"] if c["id"] == 1)
        if lost != own or own == 0:
            wrong.append(f"{lost} of the {own} images of the client that is gone are left out")
        if len(report["rounds"]) != len(clean["rounds"]):
            wrong.append("not all rounds")
    return wrong


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
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
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


class Killed(BaseException):
    """Nothing that anybody catches."""


def process_faults(folder: Path) -> list[dict[str, Any]]:
    """What befalls the process itself, in scoring and in writing; then `--resume`."""
    clean_at, rows = folder / "CLEAN", []
    assert run([*shlex.split(ACTIVE), "--out", str(clean_at)])[0] == 0
    clean = read(clean_at)
    full = OSError(28, "No space left on device")
    # What fails, the function in which, at which of its calls, and how.
    places: list[tuple[str, str, int, BaseException]] = [
        ("killed in scoring", "fedmia.evaluation.steps.scorer.Scorer.score_attack", 1, Killed()),
        ("killed before the report", "fedmia.simulate.publish", 0, Killed()),
        ("killed in its figures", "fedmia.report.figures.draw.draw_all", 0, Killed()),
        ("killed in a checkpoint", "fedmia.federation.checkpoint.Checkpoint.write", 4, Killed()),
        ("killed at the fork", "fedmia.federation.rounds.FederatedRun._fork", 0, Killed()),
        (
            "killed as it reads a model",
            "fedmia.evaluation.federated.recorder.TrajectoryRecorder._read",
            3,
            Killed(),
        ),
        ("killed as it keeps scores", "fedmia.storage.archive.Archive.save", 2, Killed()),
        ("killed in the last branch", "fedmia.federation.rounds.FederatedRun._note", 5, Killed()),
        ("disk full: a client's state", "fedmia.federation.ledger.write_tensors", 9, full),
        ("disk full: the server's", "fedmia.federation.checkpoint.write_tensors", 9, full),
        ("disk full: a model", "fedmia.storage.snapshot.write_tensors", 2, full),
        ("disk full: scores", "fedmia.storage.archive.save_file", 3, full),
        ("disk full: the report", "fedmia.report.publish.json_text", 0, full),
    ]
    for number, (what, target, at, error) in enumerate(places):
        out, began = folder / str(number), time.perf_counter()
        module, _, name = target.rpartition(".")
        owner = resolve_target(module)
        plain = getattr(owner, name)

        calls = itertools.count()

        def fails(
            *arguments: Any, plain: Any = plain, calls: Any = calls, at: int = at,
            error: BaseException = error, **more: Any,
        ) -> Any:  # fmt: skip
            if next(calls) == at:
                raise error
            return plain(*arguments, **more)

        wrong: list[str] = []
        with patch.object(owner, name, fails):
            try:
                code, errors, _ = run([*shlex.split(ACTIVE), "--out", str(out)])
                if code != DISK_FAILED or errors.count("\n") != 1:
                    wrong.append(f"exit code {code}: {errors}")
            except Killed:
                code = -9
        if code == 0:
            wrong.append("the fault did not happen")
        again, errors, _ = run(["--resume", str(out), "--quiet"])
        if again or read(out) != clean:
            wrong.append(f"resumed: exit code {again}, or another report")
        seconds = round(time.perf_counter() - began, 1)
        rows.append({
            "backend": "inline", "kind": what, "when": "scoring or writing", "policy": "--resume",
            "code": code, "seconds": seconds, "wrong": wrong,
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def resolve_target(path: str) -> Any:
    """A module, or a class in one."""
    import importlib

    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


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
        begun = (out / "config.yaml").is_file()
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
    parser.add_argument("--only", choices=("faults", "kills"))
    parser.add_argument("--backends", default="inline,ray")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    sys.path.insert(0, str(HERE))  # where faulty.py lies
    results: dict[str, Any] = {"faults": [], "kills": []}
    backends = args.backends.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("process", "kills", *backends):
            (folder / name).mkdir()
        if args.only != "kills":
            plain = patch.object(draw, "draw_all", lambda scores, report: {})
            with plain, cluster("ray" in backends):
                for backend in backends:
                    results["faults"] += client_faults(backend, folder / backend)
            results["faults"] += process_faults(folder / "process")
        if args.only != "faults":
            results["kills"] = kills(args.kills, folder / "kills")
    results |= {"setting": {"faults": TINY, "kills": ACTIVE}, **describe()}
    args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    args.out.with_suffix(".md").write_text(text := table(results), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
