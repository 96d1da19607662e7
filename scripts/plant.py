"""Plant bugs one by one and say which the tests find: python scripts/plant.py [--only NAME].

`tests/planted.yaml` lists the bugs. Each is planted in a temporary `git worktree` of its own, never
in the working tree. Its tests run from the narrowest stage to the widest until one fails; the
golden reports come last. What found a bug must pass without any, which is tried at the end. The
report goes to standard output, to OUT.json as results come, and as a table to OUT.md.
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
        name: of the bug. file: in which it is planted.
        line: text of the file, which occurs in it once. planted: what stands there in its place.
        tests: stages, each the paths of a pytest call, the narrowest first.
        slow: stages run with `-m slow`, after those of `tests`.
        why: what is wrong with it.
    """

    name: str
    file: str
    line: str
    planted: str
    tests: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    why: str = ""


@dataclass
class Result:
    """What became of a bug: the stage whose tests found it and the first that failed, or none."""

    name: str
    found: bool
    stage: str
    test: str
    seconds: float


def read_bugs(file: Path) -> list[Bug]:
    """The bugs of a YAML file.

    Raises:
        ValueError: two of one name.
    """
    entries = yaml.safe_load(file.read_text(encoding="utf-8"))
    bugs = [
        Bug(**{**one, "tests": tuple(one["tests"]), "slow": tuple(one.get("slow", ()))})
        for one in entries
    ]
    if len({bug.name for bug in bugs}) < len(bugs):
        raise ValueError(f"{file} names a bug twice")
    return bugs


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """A temporary copy of the repository at a commit."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder, "copy")
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(copy), commit], check=True)
        try:
            yield copy
        finally:
            subprocess.run([*git, "remove", "--force", str(copy)], check=False)


@contextmanager
def planted(bug: Bug, copy: Path) -> Iterator[None]:
    """The copy with the bug in it.

    Raises:
        ValueError: the bug's line does not occur in its file once.
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


def failures(
    copy: Path, paths: Sequence[str], limit: float, *, slow: bool, first: bool = True
) -> list[str]:
    """Tests among `paths` that fail in the copy, the first alone or all; none where all pass.

    Raises:
        ValueError: a path that is not there.
        RuntimeError: pytest could not run them.
    """
    if lost := [path for path in paths if not (copy / path.partition("::")[0]).exists()]:
        raise ValueError(f"no such tests: {', '.join(lost)}")
    cache = copy.with_name(f"{copy.name}-cache")  # pytest notes there which test failed
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-o", f"cache_dir={cache}"]
    command += ["-x"] if first else []
    marker = "slow" if slow else "not slow"
    said = copy.with_name(f"{copy.name}.log")
    with said.open("w") as log:  # no pipe, which what a test leaves running would hold open
        process = subprocess.Popen(
            [*command, "-m", marker, *paths], cwd=copy, env=os.environ | {"PYTHONPATH": str(copy)},
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        return [f"no end within {limit:g} s"]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode in (0, 5):  # 5: no test of this kind
        return []
    failed = cache / "v" / "cache" / "lastfailed"
    if failed.is_file():
        return list(json.loads(failed.read_text()))
    raise RuntimeError(f"pytest ended with {process.returncode}: {said.read_text()[-300:]}")


def stages(bug: Bug) -> Iterator[tuple[list[str], bool]]:
    """Paths of each stage, and whether its slow tests are meant."""
    for paths in bug.tests:
        yield paths.split(), False
    for paths in bug.slow:
        yield paths.split(), True
    yield [GOLDEN], False


def run(bug: Bug, copy: Path, limit: float) -> Result:
    """Plant one bug and run its stages until a test finds it."""
    began = time.monotonic()
    for paths, slow in stages(bug):
        with planted(bug, copy):
            found = failures(copy, paths, limit, slow=slow)
        if found:
            stage = " ".join(paths) + (" -m slow" if slow else "")
            return Result(bug.name, True, stage, found[0], round(time.monotonic() - began, 1))
    return Result(bug.name, False, "", "", round(time.monotonic() - began, 1))


def false_alarms(results: Sequence[Result], copy: Path, limit: float) -> list[str]:
    """The tests that found a bug and fail without any, too."""
    alarms = []
    for slow in (False, True):
        tests = {r.test for r in results if r.stage.endswith("-m slow") == slow and "::" in r.test}
        if tests:
            alarms += failures(copy, sorted(tests), 10 * limit, slow=slow, first=False)
    return alarms


def write(results: Mapping[str, Result], bugs: Sequence[Bug], out: Path) -> None:
    """OUT.json and OUT.md of the results so far, in the order of the list."""
    known = [results[bug.name] for bug in bugs if bug.name in results]
    out.with_suffix(".json").write_text(json.dumps([asdict(one) for one in known], indent=1) + "\n")
    lines = ["| bug | found | by | s |", "| --- | --- | --- | --- |"]
    for one in known:
        found = "yes" if one.found else "**escaped**"
        lines.append(f"| {one.name} | {found} | {one.test} | {one.seconds:g} |")
    lines.append(f"\n{sum(one.found for one in known)} of {len(known)} found.")
    out.with_suffix(".md").write_text("\n".join(lines) + "\n")


def main() -> int:
    """Run the bugs asked for; 1 where one escaped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="name of a bug, all of them by default")
    parser.add_argument("--at", default="HEAD", help="commit to plant them in, default HEAD")
    parser.add_argument("--jobs", type=int, default=1, help="copies at work at once, default 1")
    parser.add_argument("--out", type=Path, help="path of the .json and .md, without suffix")
    parser.add_argument("--limit", type=float, default=900, help="seconds of a stage, default 900")
    asked = parser.parse_args()
    bugs = read_bugs(BUGS)
    if unknown := set(asked.only or ()) - {bug.name for bug in bugs}:
        parser.error(f"no such bug: {', '.join(sorted(unknown))}")
    chosen = [bug for bug in bugs if not asked.only or bug.name in asked.only]
    results: dict[str, Result] = {}
    if asked.out and asked.out.with_suffix(".json").is_file():  # those of before stay
        before = json.loads(asked.out.with_suffix(".json").read_text())
        results = {one["name"]: Result(**one) for one in before}
    errors, copies = [], SimpleQueue[Path]()

    def work(bug: Bug) -> Result | str:
        copy = copies.get()
        try:
            return run(bug, copy, asked.limit)
        except (ValueError, RuntimeError, OSError) as error:
            return f"{bug.name}: {error}"
        finally:
            copies.put(copy)

    with worktree(asked.at) as first:
        copies.put(first)
        # More copies are folders of the first: one `git worktree` for all of them.
        for number in range(1, asked.jobs):
            other = first.with_name(f"copy-{number}")
            subprocess.run(["cp", "-r", str(first), str(other)], check=True)
            copies.put(other)
        with ThreadPoolExecutor(asked.jobs) as pool:
            for bug, done in zip(chosen, pool.map(work, chosen), strict=True):
                if isinstance(done, str):
                    errors.append(done)
                    print(f"error: {done}", flush=True)
                    continue
                results[bug.name] = done
                said = f"found by {done.test}" if done.found else "ESCAPED"
                print(f"{bug.name}: {said} ({done.seconds:g} s)", flush=True)
                if asked.out:
                    write(results, bugs, asked.out)
        done_now = [results[bug.name] for bug in chosen if bug.name in results]
        for test in false_alarms(done_now, first, asked.limit):
            errors.append(test)
            print(f"error: {test} fails without a bug, too", flush=True)
    escaped = [bug.name for bug in chosen if bug.name in results and not results[bug.name].found]
    print(f"{len(chosen) - len(escaped) - len(errors)} of {len(chosen)} found")
    return 1 if escaped or errors else 0


if __name__ == "__main__":
    sys.exit(main())
