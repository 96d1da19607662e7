"""Plant random mutants and say which the tests find: python tools/mutants.py [--only NAME].

tests/mutants.json holds eighty lines of the packages, drawn once at random, with one change each.
Every commit plants the same ones where their line still stands once, in its file or in the one that
it moved to; the others are counted as gone.

A mutant meets the default tests that execute its line, the quickest files first. Which these are is
measured once a commit, by all default tests under `coverage`, and kept outside of the clone; --map
names a file that says so. A line that runs on import alone meets the tests that execute most of its
file. tools/plant.py runs them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from plant import ROOT, Bug, make_parser, make_worktree, plant_bugs, read_bugs

MUTANTS = ROOT / "tests" / "mutants.json"
MOST_FILES = 8  # of tests for one mutant
SEARCHED = ("*.py", ":!tests", ":!docs")  # where a line may have moved to
LIMIT = 120.0  # seconds for one mutant
SETTINGS = """[run]
source_pkgs = fedmia,strategies,clients,research
parallel = True
data_file = {folder}/data
core = ctrace
disable_warnings = no-data-collected,module-not-measured,module-not-imported
"""
# Each process is measured, and says of each line the file of the test that executed it.
STARTS = "import coverage\ncoverage.process_startup()\n"
PLUGIN = """import coverage, pytest
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    if measured := coverage.Coverage.current():
        measured.switch_context(item.location[0])
"""
# `lines`: file -> line -> files of the tests that execute it; `seconds`: of each of these files.
Map = Mapping[str, Mapping[str, Any]]


def measure(commit: str, jobs: int) -> Map:
    """Run the default tests of a commit, and note which lines each file of them executes.

    Args:
        commit: Whose tests are run.
        jobs: Processes that run them.
    """
    from coverage import Coverage

    with make_worktree(commit) as copy, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, text in (
            ("settings", SETTINGS.format(folder=folder)),
            ("sitecustomize.py", STARTS),
            ("contexts.py", PLUGIN),
        ):
            (folder / name).write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
        command += ["-p", "contexts", "-m", "not slow", "-n", str(jobs)]
        command += [f"--junitxml={folder / 'tests.xml'}", "tests"]
        paths = {"PYTHONPATH": f"{folder}:{copy}", "COVERAGE_PROCESS_START": f"{folder}/settings"}
        subprocess.run(command, cwd=copy, env=os.environ | paths, check=False)
        measured = Coverage(data_file=str(folder / "all"))
        measured.combine([str(file) for file in folder.glob("data.*")])
        data, lines = measured.get_data(), dict[str, dict[str, list[str]]]()
        for file in data.measured_files():
            tests = {
                str(line): sorted(name for name in names if name.startswith("tests/"))
                for line, names in data.contexts_by_lineno(file).items()
            }
            lines[os.path.relpath(file, copy)] = {line: of for line, of in tests.items() if of}
        seconds = defaultdict[str, float](float)
        for case in ElementTree.parse(folder / "tests.xml").iter("testcase"):
            name = case.get("classname", "").replace(".", "/")
            seconds[f"{name}.py"] += float(case.get("time", 0))
    return {"lines": lines, "seconds": seconds}


def read_map(commit: str, file: Path | None, jobs: int) -> Map:
    """Read which tests execute which lines; of a commit measured once.

    Args:
        commit: Of the tests.
        file: That says so; None: the one of the cache.
        jobs: Processes that measure it.
    """
    if file is None:
        git = ["git", "-C", str(ROOT), "rev-parse", commit]
        digest = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        file = cache / "fedmia-mutants" / f"{digest}.json"
        if not file.is_file():
            content = json.dumps(measure(digest, jobs))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
    found: Map = json.loads(file.read_text(encoding="utf-8"))
    return found


def find_tests(executed: Map, file: str, line: int, limit: float = LIMIT) -> str:
    """Paths of the tests that execute a line, the quickest first, as many as have time.

    Args:
        executed: Which tests execute which lines.
        file: Of the packages.
        line: Its number, from 1.
        limit: Seconds of all tests together.
    """
    lines, seconds = executed["lines"].get(file, {}), executed["seconds"]
    share = Counter(test for tests in lines.values() for test in tests)
    of_line = lines.get(str(line), [])
    # Of a line that runs on import no test is known.
    first = dict.fromkeys(of_line, 0) or {test: -count for test, count in share.items()}
    chosen, spent = list[str](), 0.0
    for test in sorted(first, key=lambda one: (first[one], seconds.get(one, 0.0), one)):
        spent += seconds.get(test, 0.0)
        if len(chosen) == MOST_FILES or (chosen and spent > limit):
            break
        chosen.append(test)
    return " ".join(chosen)


def place_mutant(bug: Bug, commit: str, executed: Map, limit: float) -> Bug | None:
    """Find the line of a mutant in its file, else in the one file that it moved to.

    Args:
        bug: Mutant as it was drawn.
        commit: In which it is sought.
        executed: Which tests execute which lines.
        limit: Seconds of its tests.

    Returns:
        The mutant where it may be planted, with its tests; None where its line is gone.
    """
    git = ["git", "-C", str(ROOT), "grep", "-n", "-F", "-e", bug.line, commit, "--", *SEARCHED]
    printed = subprocess.run(git, capture_output=True, text=True).stdout
    places = [row.removeprefix(f"{commit}:").split(":", 2)[:2] for row in printed.splitlines()]
    counts = Counter(file for file, _ in places)
    file = bug.file if bug.file in counts else next(iter(counts), "")
    if counts[file] != 1 or (file != bug.file and len(counts) > 1):
        return None
    (line,) = (int(number) for name, number in places if name == file)
    tests = find_tests(executed, file, line, limit)
    return replace(bug, file=file, tests=(tests,) if tests else (), golden=not tests)


def main() -> int:
    """Plant the mutants whose line still stands."""
    parser = make_parser(__doc__.splitlines()[0], LIMIT)
    parser.add_argument("--map", type=Path, help="JSON file of which tests execute which lines")
    arguments = parser.parse_args()
    mutants, commit = read_bugs(MUTANTS), arguments.at
    executed = read_map(commit, arguments.map, arguments.jobs)
    places = {bug.name: place_mutant(bug, commit, executed, arguments.limit) for bug in mutants}
    gone = [name for name, place in places.items() if place is None]
    print(f"{len(gone)} of {len(mutants)} lines are gone: {', '.join(gone) or 'none'}", flush=True)
    return plant_bugs([place for place in places.values() if place is not None], arguments)


if __name__ == "__main__":
    sys.exit(main())
