"""`fedmia.run_study`: one experiment at every point of a grid, with several seeds, as one table."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedmia.cli.command import Invocation
from fedmia.cli.commands import SWEEP
from fedmia.door.arguments import Config, build_settings, listed
from fedmia.door.plugins import name_plugin
from fedmia.door.simulation import interrupts
from fedmia.options import session
from fedmia.options.bounded import read_json
from fedmia.options.errors import InputError, unknown_name
from fedmia.runs import Run, open_run
from fedmia.storage.runfolder import damaged
from fedmia.table import read

if TYPE_CHECKING:
    import pandas as pd

Part = TypeVar("Part")
PAGE, REPORT = "sweep.html", "sweep.json"


def run_study(
    config: Config = None,
    *,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] | None = None,
    seeds: int = 1,
    out: str | Path,
    quiet: bool = False,
    **options: Any,
) -> StudyResult:
    """Simulate every point of a grid with several seeds, each run in a process of its own.

    The same as `fedmia sweep`: the same call goes on with what is not finished.

        study = fedmia.run_study("smoke", grid={"partition.alpha": [0.1, 1]}, seeds=5, out="STUDY")
        study.table

    Args:
        config: preset, YAML file or nested mapping that every run starts from.
        grid: path of an option -> its values, or several such mappings; without it, one point
            is run.
        seeds: runs of each point, with seeds SEED, SEED+1, ..; 1 or more.
        out: folder of the study.
        quiet: show no progress.
        options: as of `fedmia.run_simulation`, and those of `fedmia sweep` (`jobs=2`,
            `baseline="similarity"`).

    Returns:
        The study, as far as its runs could be done.

    Raises:
        InputError: bad input, in one line; no run is begun.
    """
    from fedmia.study.run import write_study
    from fedmia.study.simulations import sweep_parts  # flwr, which opening a study does not need

    points = {} if grid is None else grid
    baseline = options.get("baseline")
    if baseline is not None and not isinstance(baseline, str):
        options["baseline"] = name_plugin("attack", baseline)["name"]
    options |= {
        "grid": [name_values(one) for one in ([points] if isinstance(points, Mapping) else points)]
    }
    settings = build_settings(SWEEP, config, {**options, "seeds": seeds})
    with interrupts("runs") as stop, session_for_children():
        invocation = Invocation(settings, Path(out), quiet)
        write_study(invocation, stop, *sweep_parts(settings))
    return StudyResult(Path(out), True)


def open_study(folder: str | Path, *, trust_plugins: bool = False) -> StudyResult:
    """Open the folder of a study that `run_study` or `fedmia sweep` wrote.

    Args:
        folder: where `sweep.json` lies.
        trust_plugins: as of `open_run`, for each of its runs.

    Returns:
        The study.

    Raises:
        InputError: the folder holds no study.
    """
    path = Path(folder)
    if not (path / REPORT).is_file():
        raise InputError(f"folder '{folder}' is no study: no {REPORT} in it")
    return StudyResult(path, trust_plugins)


def _of_report(part: Callable[[StudyResult], Part]) -> Callable[[StudyResult], Part]:
    """A part of a `StudyResult`, read off its report: one line refuses what is no study's."""

    @wraps(part)
    def read_part(self: StudyResult) -> Part:
        with damaged(self.folder, REPORT):
            return part(self)

    return read_part


class StudyResult:
    """What `run_study` and `open_study` return. Everything is read when it is first used.

    Attributes:
        folder: of the study.
        trust_plugins: whether plugins from outside that its runs name are imported.
    """

    def __init__(self, folder: Path, trust_plugins: bool) -> None:
        self.folder, self.trust_plugins = folder, trust_plugins

    def __repr__(self) -> str:
        return f"<StudyResult {self.folder} ({len(self.runs)} runs)>"

    @_of_report
    def _repr_html_(self) -> str:
        """The study as Jupyter shows it: its sentence, the runs' verdicts, each attack's mean AUC
        by point; red where a run leaks, else amber."""
        from fedmia.report.notebook import html_study

        scores = self.table.query("subject == 'attack' and metric == 'auc' and control.isna()")
        means = scores.groupby(["point", "attack"], sort=False)["value"].agg(["mean", "count"])
        rows = [
            {"point": point or "the experiment", "attack": attack, "mean AUC": f"{mean:.2f}",
             "models": str(count)}
            for (point, attack), (mean, count) in zip(
                means.index, means.astype({"count": int}).itertuples(index=False), strict=True
            )
        ]  # fmt: skip
        codes = (row["results"]["verdict_code"] for row in self.report["cells"] if row["results"])
        return html_study(self.sentence, rows, codes)

    @cached_property
    @_of_report
    def report(self) -> dict[str, Any]:
        """What `sweep.json` holds."""
        report: dict[str, Any] = read_json(self.folder / REPORT)
        return dict(report)

    @property
    @_of_report
    def sentence(self) -> str:
        """What a reader should take home."""
        return str(self.report["sentence"])

    @cached_property
    def runs(self) -> dict[str, Run]:
        """The finished runs by name: `partition.alpha=0.1_seed=0`."""
        folders = sorted(p.parent for p in (self.folder / "cells").glob("*/report.json"))
        trust = self.trust_plugins
        return {folder.name: open_run(folder, trust_plugins=trust) for folder in folders}

    @cached_property
    @_of_report
    def failed(self) -> dict[str, str]:
        """Why a run failed or was not done, by its name."""
        rows = self.report.get("cells", ())
        return {row["name"]: row["reason"] or row["state"] for row in rows if not row["path"]}

    @cached_property
    def table(self) -> pd.DataFrame:
        """Every number of every run, a row each, with the columns of `fedmia.table.COLUMNS`.

        A class of a notebook is called by its name alone.
        """
        import pandas as pd

        from fedmia.table import COLUMNS

        return pd.DataFrame(self._rows, columns=list(COLUMNS))

    def compare(self, attack: Any, baseline: Any) -> pd.DataFrame:
        """What an attack adds to another one, on the same models and the same images.

        Args:
            attack: name, class or instance.
            baseline: likewise.

        Returns:
            A row a point and measure (AUC, TPR at 1 % FPR): `difference` with its 95 % interval
            between models `low`, `high`, two-sided `p` of the t test on paired seeds, `p_holm`
            corrected over these rows, `models`: how many there are, `unsound`: how many runs of the
            point have the verdict `control-failed` or `shift`, so that their AUCs show no leak.

        Raises:
            InputError: no run has such an attack.
        """
        import pandas as pd

        from fedmia.config.sweep import label
        from fedmia.report.verdict import UNSOUND
        from fedmia.study.points import fill_holm
        from fedmia.study.views.baseline import Baseline

        one, other = self._attack(attack), self._attack(baseline)
        rows = [row for row in self._rows if row["attack"] in (one, other)]
        comparisons = list(Baseline(other).comparisons(rows))
        fill_holm(comparisons)
        unsound = [
            label(cell["grid"])
            for cell in self.report.get("cells", ())
            if cell["results"] and cell["results"]["verdict_code"] in UNSOUND
        ]
        table = []
        for row in comparisons:
            low, high = row["difference"]["ci"] or (None, None)
            table.append({
                "point": row["point"],
                "attack": one,
                "baseline": other,
                "measure": row["measure"],
                "difference": row["difference"]["mean"],
                "low": low,
                "high": high,
                "p": row["p"],
                "p_holm": row["p_holm"],
                "models": row["difference"]["n"],
                "unsound": unsound.count(row["point"]),
            })  # fmt: skip
        return pd.DataFrame(table)

    @cached_property
    def _rows(self) -> list[Any]:
        """The rows of the study's table, which several of its parts read."""
        return read(self.folder)

    def _attack(self, attack: Any) -> str:
        """The name of an attack in the runs; InputError where no run has it."""
        name = attack if isinstance(attack, str) else name_plugin("attack", attack)["name"]
        names = sorted({row["attack"] for row in self._rows if row["attack"]})
        matches = [n for n in names if n in (name, session.short_name(name))]
        matches += [n for n in names if n.rpartition(":")[2] == name]  # of package.module:Class
        if not matches:
            raise unknown_name("attack of this study", name, names)
        return str(matches[0])


def name_values(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """A grid whose plugins are names.

    Args:
        grid: path of an option -> values, which may be classes or instances.

    Returns:
        The grid with plain values.

    Raises:
        InputError: an option without a list of values.
    """
    plain: dict[str, list[Any]] = {}
    kinds = SWEEP.shape.plugins
    for path, values in grid.items():
        if not listed(values):
            raise InputError(f"grid: {path} needs a list of values, got {values!r}")
        place = SWEEP.short.get(path, path)  # `clients` is short for `federation.clients`
        head = place.removesuffix(".name")
        kind = kinds.get(head)
        plain[place] = [v if kind is None else _plugin_name(kind, head, v) for v in values]
    return plain


def _plugin_name(kind: str, path: str, value: Any) -> str:
    """The name of a plugin that is a value of a grid, which has no options of its own."""
    plugin = name_plugin(kind, value)
    if options := [name for name in plugin if name != "name"]:
        raise InputError(
            f"grid: a value of {path} is a name alone; give its options as a grid of their own: "
            f'"{path}.{options[0]}": [{plugin[options[0]]!r}]'
        )
    return str(plugin["name"])


@contextmanager
def session_for_children() -> Iterator[None]:
    """Let the processes of runs import what this session can, and have its classes."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", session.VARIABLE)}
    with tempfile.TemporaryDirectory(prefix="fedmia-session-") as folder:
        places = [str(Path(place or ".").resolve()) for place in sys.path]
        os.environ["PYTHONPATH"] = os.pathsep.join(places)
        if session.classes():
            file = Path(folder) / "classes.pkl"
            session.write(file)
            os.environ[session.VARIABLE] = str(file)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
