"""Jobs of tables that are over, with numbers that a test says: the command makes tables of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from research.papers.__main__ import main
from research.papers.entries import read_entries
from tests.commands import Ran, call
from tests.made_up_runs import write_run

FILES = {"encoder": "losses.json", "paper": "tables.json", "head": "report.json"}  # of no run
Content = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]  # the same of all, or by seed


def papers(line: str, out: Path | None = None) -> Ran:
    """Run `python -m research.papers LINE`."""
    return call(main, line, out)


def finish(job: Path, cpu: str = "x") -> None:
    """A job is over that took two seconds on this processor."""
    (job / "results").mkdir(parents=True, exist_ok=True)
    hardware = {"cpu": cpu, "cores": 2, "gpus": []}
    done = {"seconds": 2.0, "commit": "c", "versions": {"torch": "2"}, "hardware": hardware}
    (job / "done.json").write_text(json.dumps(done))


class Finished:
    """A folder of the command.

    Args:
        root: of `--out`.
        data: where every data set seems to lie.
    """

    def __init__(self, root: Path, data: Path) -> None:
        self.root, self.data = root, data

    def write(
        self, name: str, scale: str, content: Content, targets: int = 1,
        but: Collection[int] = (), cpus: str = "x",
    ) -> None:  # fmt: skip
        """Finish the jobs of an entry but for targets of some seeds, each target on one of the
        processors, in turn."""
        for cell in read_entries()[name].cells(scale, self.data, targets):
            for place, job in enumerate(cell.jobs):
                chain = [*job.chain()]
                seed = chain[0].tree["seed"]
                if seed in but:
                    continue
                for one in chain:
                    finish(self.root / "jobs" / one.key, cpus[place % len(cpus)])
                own = content if isinstance(content, Mapping) else content(seed)
                results = self.root / "jobs" / job.key / "results"
                if job.kind in FILES:
                    (results / FILES[job.kind]).write_text(json.dumps(own))
                else:
                    write_run(results, own)

    def tables(
        self, names: Iterable[str], scale: str, more: str = "", code: int = 0
    ) -> dict[str, Any]:
        """The tables that the command makes, by name, as their JSON files hold them."""
        line = f"{','.join(names)} --scale {scale} --data-dir {self.data} --device cpu {more}"
        ran = papers(line, self.root)
        assert ran.code == code, ran.err
        folder = self.root / "tables"
        return {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in names}


def numbers(table: Mapping[str, Any]) -> dict[tuple[str, str], float | None]:
    """What a table has found, by row and column."""
    cells = (cell for cell in table["cells"] if cell["state"] != "not run")
    return {(cell["row"], cell["column"]): cell["ours"] for cell in cells}


def scored(name: str, **row: Any) -> dict[str, Any]:
    """The row of an attack in a report."""
    return {"name": name, "n_members": 5, "n_nonmembers": 7, **row}
