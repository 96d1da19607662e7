"""Plant bugs one by one and say which the tests find: python tools/plant.py [--only NAME].

`tests/planted.yaml` lists the bugs. The script plants each of them in a temporary `git worktree`,
never in the working tree. It runs the bug's tests from the narrowest stage to the widest until one
fails; the golden reports come last. At the end it runs every test that found a bug without any
bug: a test that fails nevertheless found nothing. It prints one line a bug, and with `--out` it
writes OUT.json and the table OUT.md as results come.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

import yaml

ROOT = Path(__file__).resolve().parents[1]
BUGS = ROOT / "tests" / "planted.yaml"
GOLDEN = "tests/golden"


@dataclass(frozen=True)
class Bug:
    """One bug of the list.

    Attributes:
        name: Name of the bug.
        file: File in which it is planted.
        line: Text that occurs in the file once.
        planted: Text that replaces it.
        tests: Stages, each the paths of a pytest call, the narrowest first.
        slow: Stages that run with `-m slow`, after those of `tests`.
        why: What is wrong with it.
        golden: Whether the golden reports are the last stage.
    """

    name: str
    file: str
    line: str
    planted: str
    tests: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    why: str = ""
    golden: bool = True


@dataclass
class Result:
    """Whether the tests find a bug.

    Attributes:
        name: Name of the bug.
        found: Whether a test fails with the bug planted.
        stage: Paths of the stage that found it, empty where none did.
        test: First test that failed.
        seconds: Time of all stages that ran.
    """

    name: str
    found: bool
    stage: str
    test: str
    seconds: float


def read_bugs(file: Path) -> list[Bug]:
    """Read the list of bugs from a YAML file.

    Raises:
        ValueError: Two bugs have one name.
    """
    entries = yaml.safe_load(file.read_text(encoding="utf-8"))
    bugs = [
        Bug(**{**one, "tests": tuple(one.get("tests", ())), "slow": tuple(one.get("slow", ()))})
        for one in entries
    ]
    if len({bug.name for bug in bugs}) < len(bugs):
        raise ValueError(f"{file} names a bug twice")
    return bugs


@contextmanager
def make_worktree(commit: str) -> Iterator[Path]:
    """Make a temporary copy of the repository at a commit."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder, "copy")
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(copy), commit], check=True)
        try:
            yield copy
        finally:
            subprocess.run([*git, "remove", "--force", str(copy)], check=False)


@contextmanager
def plant_bug(bug: Bug, copy: Path) -> Iterator[None]:
    """Keep a bug in a copy of the repository while the context is open.

    Args:
        bug: Bug to be planted.
        copy: Root of the copy.

    Raises:
        ValueError: The bug's line does not occur in its file exactly once.
    """
    file = copy / bug.file
    text = file.read_text(encoding="utf-8")
    if text.count(bug.line) != 1:
        raise ValueError(f"its line occurs {text.count(bug.line)} times in {bug.file}")

    def write(content: str) -> None:
        file.write_text(content, encoding="utf-8")
        # Python compares a compiled file with the source's size and whole seconds alone.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()

    write(text.replace(bug.line, bug.planted))
    try:
        yield
    finally:
        write(text)


def run_tests(
    copy: Path, paths: Sequence[str], limit: float, *, slow: bool, first: bool = True
) -> list[str]:
    """Run tests in a copy of the repository.

    Args:
        copy: Root of the copy.
        paths: Files, folders or tests, relative to it.
        limit: Seconds after which the run is killed.
        slow: Whether to run the tests marked slow, or all others.
        first: Whether to stop at the first failure.

    Returns:
        Names of the tests that failed.

    Raises:
        ValueError: A path does not exist.
        RuntimeError: pytest could not run the tests, or not in time: a busy machine finds no bug.
    """
    if missing := [path for path in paths if not (copy / path.partition("::")[0]).exists()]:
        raise ValueError(f"no such tests: {', '.join(missing)}")
    cache = copy.with_name(f"{copy.name}-cache")  # pytest notes there which test failed
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-o", f"cache_dir={cache}"]
    command += ["-x"] if first else []
    marker = "slow" if slow else "not slow"
    log_file = copy.with_name(f"{copy.name}.log")
    with log_file.open("w") as log:  # a process that a test leaves behind would keep a pipe open
        process = subprocess.Popen(
            [*command, "-m", marker, *paths], cwd=copy, env=os.environ | {"PYTHONPATH": str(copy)},
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no end within {limit:g} s of {', '.join(paths)}") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode in (0, 5):  # 5: no test of this kind
        return []
    failed = cache / "v" / "cache" / "lastfailed"
    if failed.is_file():
        return list(json.loads(failed.read_text()))
    if process.returncode == 4 and "while loading conftest" in (log := log_file.read_text()):
        return [log.split("while loading conftest")[1].split("'")[1].removeprefix(f"{copy}/")]
    raise RuntimeError(f"pytest ended with {process.returncode}: {log_file.read_text()[-300:]}")


def list_stages(bug: Bug) -> Iterator[tuple[list[str], bool]]:
    """List the paths of each stage, and whether it runs slow tests."""
    for paths in bug.tests:
        yield paths.split(), False
    for paths in bug.slow:
        yield paths.split(), True
    if bug.golden:
        yield [GOLDEN], False


def run_bug(bug: Bug, copy: Path, limit: float) -> Result:
    """Plant one bug and run its stages until a test finds it.

    Args:
        bug: Bug to be planted.
        copy: Root of the copy in which it is planted.
        limit: Seconds of one stage.

    Returns:
        What the tests found.
    """
    began = time.monotonic()
    for paths, slow in list_stages(bug):
        with plant_bug(bug, copy):
            failed = run_tests(copy, paths, limit, slow=slow)
        if failed:
            stage = " ".join(paths) + (" -m slow" if slow else "")
            return Result(bug.name, True, stage, failed[0], round(time.monotonic() - began, 1))
    return Result(bug.name, False, "", "", round(time.monotonic() - began, 1))


def find_false_alarms(results: Sequence[Result], copy: Path, limit: float) -> list[str]:
    """Run every test that found a bug once more without any bug.

    Args:
        results: Results of all bugs.
        copy: Root of a copy without a bug.
        limit: Seconds of one stage.

    Returns:
        Names of the tests that fail nevertheless, so that they found nothing.
    """
    alarms = []
    for slow in (False, True):
        tests = {r.test for r in results if r.stage.endswith("-m slow") == slow and "::" in r.test}
        if tests:
            alarms += run_tests(copy, sorted(tests), 10 * limit, slow=slow, first=False)
    return alarms


def write_results(results: Mapping[str, Result], bugs: Sequence[Bug], out: Path) -> None:
    """Write OUT.json and OUT.md of the results so far, in the order of the list.

    Args:
        results: Result by name of the bug.
        bugs: The whole list.
        out: Path of both files, without suffix.
    """
    finished = [results[bug.name] for bug in bugs if bug.name in results]
    out.with_suffix(".json").write_text(
        json.dumps([asdict(one) for one in finished], indent=1) + "\n"
    )
    lines = ["| bug | found | by | s |", "| --- | --- | --- | --- |"]
    for one in finished:
        outcome = "yes" if one.found else "**escaped**"
        lines.append(f"| {one.name} | {outcome} | {one.test} | {one.seconds:g} |")
    lines.append(f"\n{sum(one.found for one in finished)} of {len(finished)} found.")
    out.with_suffix(".md").write_text("\n".join(lines) + "\n")


def make_parser(description: str, limit: float) -> argparse.ArgumentParser:
    """Make the parser of a command line that plants bugs.

    Args:
        description: First line of the help.
        limit: Default of `--limit`, in seconds.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", action="append", help="name of a bug (default: all of them)")
    parser.add_argument("--at", default="HEAD", help="commit to plant them in (default: HEAD)")
    parser.add_argument("--jobs", type=int, default=1, help="bugs tried side by side (default: 1)")
    parser.add_argument("--out", type=Path, help="path of the .json and .md, without suffix")
    parser.add_argument("--limit", type=float, default=limit, help=f"seconds a stage ({limit:g})")
    return parser


def plant_bugs(bugs: Sequence[Bug], arguments: argparse.Namespace) -> int:
    """Plant the chosen bugs of a list.

    Args:
        bugs: The whole list.
        arguments: Parsed command line.

    Returns:
        1 where a bug escaped or could not be tried, 2 where one is not in the list, else 0.
    """
    if unknown := set(arguments.only or ()) - {bug.name for bug in bugs}:
        print(f"no such bug: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [bug for bug in bugs if not arguments.only or bug.name in arguments.only]
    results: dict[str, Result] = {}
    if arguments.out and arguments.out.with_suffix(".json").is_file():  # go on with that table
        earlier = json.loads(arguments.out.with_suffix(".json").read_text())
        results = {one["name"]: Result(**one) for one in earlier}
    errors, copies = list[str](), SimpleQueue[Path]()

    def try_bug(bug: Bug) -> Result | str:
        copy = copies.get()
        try:
            return run_bug(bug, copy, arguments.limit)
        except (ValueError, RuntimeError, OSError) as error:
            return f"{bug.name}: {error}"
        finally:
            copies.put(copy)

    with make_worktree(arguments.at) as first:
        copies.put(first)
        for number in range(1, arguments.jobs):  # one `git worktree` suffices for all copies
            other = first.with_name(f"copy-{number}")
            subprocess.run(["cp", "-r", str(first), str(other)], check=True)
            copies.put(other)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for result in pool.map(try_bug, chosen):
                if isinstance(result, str):
                    errors.append(result)
                    print(f"error: {result}", flush=True)
                    continue
                results[result.name] = result
                outcome = f"found by {result.test}" if result.found else "ESCAPED"
                print(f"{result.name}: {outcome} ({result.seconds:g} s)", flush=True)
                if arguments.out:
                    write_results(results, bugs, arguments.out)
        finished = [results[bug.name] for bug in chosen if bug.name in results]
        for test in find_false_alarms(finished, first, arguments.limit):
            errors.append(test)
            print(f"error: {test} fails without a bug, too", flush=True)
    escaped = [result.name for result in finished if not result.found]
    print(f"{len(finished) - len(escaped)} of {len(chosen)} found, {len(errors)} errors")
    return 1 if escaped or errors else 0


if __name__ == "__main__":
    sys.exit(plant_bugs(read_bugs(BUGS), make_parser(__doc__.splitlines()[0], 900).parse_args()))
