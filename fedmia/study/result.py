"""A study: its cells, its one table, and what is made of them."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from inspect import isclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedmia.runs import Run, open_run
from fedmia.settings import registry, session
from fedmia.settings.errors import InputError, unknown_name
from fedmia.storage.results import read
from fedmia.storage.runfolder import RunFolder
from fedmia.study.cells import CellState
from fedmia.study.columns import estimate, in_one_line
from fedmia.study.names import check_names, rename_cells, rename_table
from fedmia.study.points import (
    comparisons,
    group_by_key,
    numbers_of,
    over_models,
    over_points,
)
from fedmia.study.rows import PointRow, SeedValues
from fedmia.study.words import notes_on, void_sentence
from fedmia.table import COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

R = TypeVar("R", bound=PointRow)
STUDY, PAGE = "study.json", "study.html"
COMPARED = "point attack baseline measure difference low high p p_holm models void"
APART = dict.fromkeys(("control", "baseline", "target_fpr"))  # tell numbers of one metric apart
Values = Mapping[tuple[Any, ...], SeedValues]  # point, and what else tells numbers apart -> by seed


class StudyResult:
    """What `run_study` and `open_study` return, and what a view reads.

    Attributes:
        folder: of the study.
        about: what `study.json` holds: `sentence`, `notes`, `settings`, `cells`, ..
        cells: the runs, those of one point together.
        trust_plugins: whether plugins from outside that it names are imported.
        called: name of an attack in the runs -> that which `rename` gave it.
    """

    def __init__(self, folder: Path, about: dict[str, Any], trust_plugins: bool = False) -> None:
        self.folder, self.about, self.trust_plugins = folder, about, trust_plugins
        self.cells = [CellState(**cell) for cell in about["cells"]]
        self.called: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"<StudyResult {self.folder} ({len(self.runs)} runs)>"

    def _repr_html_(self) -> str:
        """The study as Jupyter shows it: its sentence, the runs' verdicts, each attack's mean AUC
        by point; red where a run leaks, else amber."""
        from fedmia.report.notebook import html_study

        rows = [
            {**dict.fromkeys(self.place, point), "attack": attack,
             "mean AUC": in_one_line(estimate(auc, 2)), "models": str(auc.n)}
            for (point, attack), by_seed in self.values("auc", "attack").items()
            for auc in [over_models(by_seed.values())]
        ]  # fmt: skip
        codes = (cell.outcome for cell in self.cells if cell.outcome)
        return html_study(self.sentence, rows, codes)

    @property
    def sentence(self) -> str:
        """What a reader should take home."""
        return str(self.about.get("sentence", ""))

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings, as a file says them."""
        settings: Mapping[str, Any] = self.about["settings"]
        return settings

    @cached_property
    def runs(self) -> dict[str, Run]:
        """The finished runs by name: `partition.alpha=0.1_seed=0`."""
        return {
            run.path.name: open_run(run.path, trust_plugins=self.trust_plugins)
            for run in RunFolder(self.folder / "cells").inside()
            if run.has_report()
        }

    @property
    def failed(self) -> dict[str, str]:
        """Why a run failed or was not done, by its name."""
        return {cell.name: cell.reason or cell.state for cell in self.cells if not cell.path}

    @cached_property
    def table(self) -> pd.DataFrame:
        """Every number of every run, a row each, with the columns of `fedmia.table.COLUMNS`.

        A class of a notebook is called by its name alone.
        """
        import pandas as pd

        return pd.DataFrame(read(self.folder), columns=list(COLUMNS))

    @cached_property
    def points(self) -> pd.DataFrame:
        """Every number of the table over the models of its point: `n`, `mean`, `low` and `high`
        (95 % between models), `sd`, `least`, `greatest`; `void`: how many are left out of an
        attack's numbers, and why."""
        return over_points(self._with_reasons)

    def by_point(self) -> dict[str, list[CellState]]:
        """The runs of each point, in order."""
        return group_by_key((cell.point, cell) for cell in self.cells)

    @cached_property
    def _with_reasons(self) -> pd.DataFrame:
        """The table, and the column `void`: of what an attack measured in a void run the reason."""
        reasons = {cell.name: cell.void for cell in self.cells}
        of_attack = self.table["attack"].notna()
        return self.table.assign(void=self.table["run"].map(reasons).where(of_attack, None))

    @cached_property
    def _parts(self) -> dict[Any, pd.DataFrame]:
        """Metric and subject -> their rows, which views ask for again and again."""
        return dict(iter(self._with_reasons.groupby(["metric", "subject"], sort=False)))

    def select(self, metric: str, subject: str = "attack", **where: Any) -> pd.DataFrame:
        """The rows of the table that hold a number.

        Args:
            metric: of the number.
            subject: column `subject` of it.
            where: column -> its value, None: empty, `...`: any. Control, baseline and target_fpr
                are empty unless they are named.

        Returns:
            The rows, in order, and the column `void`: why nothing follows from the number.
        """
        rows = self._parts.get((metric, subject), self._with_reasons[:0])
        for name, value in {**APART, **where}.items():
            column = rows[name]
            fits = column == value if value not in (None, ...) else column.isna() == (value is None)
            rows = rows[fits]
        return rows

    def values(self, metric: str, *by: str, subject: str = "attack", **where: Any) -> Values:
        """Numbers of the table, by seed.

        Args:
            metric: of the numbers.
            by: columns that tell them apart, beside the point; each is filled.
            subject: column `subject` of the numbers.
            where: as of `select`.

        Returns:
            The point, and the value of each column of `by` -> seed -> number; of an attack in a
            void run the reason in its place.
        """
        rows = self.select(metric, subject, **{**dict.fromkeys(by, ...), **where})
        grouped: dict[tuple[Any, ...], dict[int, float | str]] = {}
        columns = (rows[name] for name in ("point", *by, "seed"))
        for *key, seed, value in zip(*columns, numbers_of(rows), strict=True):
            grouped.setdefault(tuple(key), {})[int(seed)] = value
        return grouped

    def point_row(self, kind: type[R], point: str, **more: Any) -> R:
        """A point as a row of a table.

        Args:
            kind: class of the row: `PointRow`, or one that has fields beside its own.
            point: of the study.
            more: these fields, and those that are not as `PointRow` says.

        Returns:
            The row.
        """
        states = Counter(cell.state for cell in self.by_point().get(point, ()))
        use = {name: over_models(v.get((point,), {}).values()) for name, v in self.use.items()}
        own = {"finished": states["finished"], "failed": states["failed"], **use}
        own |= {"verdicts": self.verdicts(point), "void": self.void(point)}
        return kind(**{"point": point, **own, **more})

    @cached_property
    def use(self) -> dict[str, Values]:
        """Accuracies of probes by point: `knn`, `linear`, `knn_after_attack`."""
        return {
            "knn": self.values("knn", subject="utility"),
            "linear": self.values("linear", subject="utility"),
            "knn_after_attack": self.values("knn", subject="utility/after_attack"),
        }

    @property
    def place(self) -> tuple[str, ...]:
        """The fields of rows that say which point they are of; none where there is one point."""
        points = {*self.by_point(), *self.table["point"]}
        return ("point",) if len(points) > 1 else ()

    def verdicts(self, point: str) -> dict[str, int]:
        """How many models of a point have each verdict; of those that are void the reason."""
        cells = self.by_point().get(point, ())
        return dict(sorted(Counter(c.outcome for c in cells if c.outcome).items()))

    def void(self, point: str) -> str:
        """How many finished runs of a point are void, and why: `1 of 3 void: collapsed`."""
        finished = [cell for cell in self.by_point().get(point, ()) if cell.outcome]
        return over_models(cell.void or 0.0 for cell in finished).void

    def compare(self, attacks: Any, baseline: Any) -> pd.DataFrame:
        """What attacks add to another one, on the same models and the same images.

        Args:
            attacks: name, class or instance of an attack, or a list of them; their p-values are
                corrected as one family.
            baseline: attack that each is compared with.

        Returns:
            A row a point, attack and measure (AUC, TPR at 1 % FPR): `difference` with its 95 %
            interval between models `low`, `high`, two-sided `p` of the t test on paired seeds,
            `p_holm` corrected over these rows, `models`: how many there are, `void`: how many runs
            are left out, and why, as `1 of 3 void: collapsed`.

        Raises:
            InputError: no run has such an attack.
        """
        import pandas as pd

        listed = attacks if isinstance(attacks, list | tuple) else [attacks]
        names, over = [self._attack(one) for one in listed], self._attack(baseline)
        rows = []
        for row in comparisons(self.select, over, names):
            less = row.difference
            low, high = less.ci or (None, None)
            own = {"difference": less.mean, "low": low, "high": high, "models": less.n}
            rows.append({**vars(row), **own, "baseline": row.other, "void": less.void})
        return pd.DataFrame(rows, columns=COMPARED.split())

    def rename(self, names: Mapping[str, str]) -> StudyResult:
        """The study with other names in its tables, figures and sentences.

        Args:
            names: of a point, an attack, an option that varies or a value of one (`fedavg`,
                `gaussian`), which also stand inside the names of points -> how they are called.

        Returns:
            A copy; files stay as they are.

        Raises:
            InputError: a name that the study does not have, two things of one name, or a view from
                outside in a folder that is not trusted.
        """
        attacks = self.table["attack"].dropna().unique()
        check_names(names, self.cells, attacks)
        copied = copy.copy(self)
        for derived in ("_with_reasons", "_parts", "points", "use"):
            vars(copied).pop(derived, None)
        copied.cells = rename_cells(self.cells, names)
        copied.table = rename_table(self.table, names)
        called = {old: names.get(new, new) for old, new in self.called.items()}
        copied.called = {name: names[name] for name in attacks if name in names} | called
        copied.about = {**self.about}
        baseline = self.settings.get("baseline")
        if (own := session.short_name(str(baseline))) in names:
            copied.about["settings"] = {**self.settings, "baseline": names[own]}
        copied.add_words()
        return copied

    @cached_property
    def views(self) -> dict[str, Any]:
        """The views of its page by name, the first of which says its sentence.

        Raises:
            InputError: one from outside, in a folder that is not trusted.
        """
        names = self.about["views"]
        if outside := [name for name in names if ":" in name and not self.trust_plugins]:
            raise InputError(
                f"study '{self.folder}' has view {outside[0]} from outside: open it with "
                "trust_plugins"
            )
        return {name: registry.build("view", name, {}) for name in names}

    def add_words(self) -> None:
        """Fill in its sentence and its notes, which its views say of its table."""
        first, *_ = views = [*self.views.values()]
        sentence = f"{first.sentence(self)} {void_sentence(self.cells)}".rstrip()
        notes = [note for view in views for note in view.notes(self)] + notes_on(self.cells)
        self.about |= {"sentence": sentence, "notes": notes}

    def figure(self, name: str) -> Figure:
        """Draw one of the page's figures again.

        Args:
            name: `attacks`, `pairs`, `baseline`, `tradeoff`, `encoders`, or one of another view.

        Raises:
            InputError: no such figure, or one of which the study has no numbers.
        """
        figures = {k: v for view in self.views.values() for k, v in view.figures(self).items()}
        if name not in figures:
            raise unknown_name("figure", name, figures)
        if (figure := figures[name]()) is None:
            raise InputError(f"figure '{name}' of '{self.folder}' has no data")
        return figure

    def to_latex(self, view: str | None = None) -> str:
        """The first table of a view for a paper.

        Args:
            view: its name; None: the first view of the page.

        Raises:
            InputError: no such view.
        """
        import pandas as pd

        name = next(iter(self.views)) if view is None else view
        if name not in self.views:
            raise unknown_name("view", name, self.views)
        section = self.views[name].sections(self)[0]
        heads, lines = section.brief_rows()
        text = str(pd.DataFrame(lines, columns=heads).to_latex(index=False, escape=True))
        if not section.limits:
            return text
        limits = f"{{\\footnotesize {section.limits}}}".replace("%", "\\%")
        below = f"\\multicolumn{{{len(heads)}}}{{p{{0.95\\linewidth}}}}{limits} \\\\\n"
        return text.replace("\\end{tabular}", f"{below}\\end{{tabular}}")

    def _attack(self, attack: Any) -> str:
        """The name of an attack in the runs; InputError where no run has it."""
        if not isinstance(attack, str):
            cls = attack if isclass(attack) else type(attack)
            known = [n for n in registry.names("attack") if registry.load("attack", n) is cls]
            attack = known[0] if known else cls.__name__
        names = sorted(self.table["attack"].dropna().unique())
        attack = self.called.get(attack, attack)
        matches = [n for n in names if n in (attack, session.short_name(attack))]
        matches += [n for n in names if n.rpartition(":")[2] == attack]  # of package.module:Class
        if not matches:
            raise unknown_name("attack of this study", attack, names)
        return str(matches[0])
