"""A run, an audit or a finished cell of a study, opened again from its folder.

    run = open_run("RUN")
    run.verdict
    run.attacks.sort_values("auc")  # a pandas data frame, one row an attack
    run.figure("roc").savefig("roc.pdf")
    run.encoder()(pixels)  # the model that was attacked

What a folder does not hold is missed by the property that needs it, and by no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fedmia.settings import session
from fedmia.settings.errors import InputError, unknown_name
from fedmia.settings.values import disk_path
from fedmia.storage.runfolder import RunFolder, damaged

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import nn

    from fedmia.data.cast import Cast
    from fedmia.records import Curves, Evaluation
    from fedmia.records.attack_rows import OverControlRow
    from fedmia.records.rows import Report
    from fedmia.report.figures.base import ReportFigure
    from fedmia.settings.commands.audit import Audit
    from fedmia.settings.commands.experiment import Experiment

Part = TypeVar("Part")
NOT_KEPT = {
    "features": "the attacks' features are not kept",
    "exposed": "its images are in figures/exposed.png alone, where they were shown",
}  # figures of more than a folder holds


def _of_files(part: Callable[..., Part]) -> Callable[..., Part]:
    """A part of a `Run`, made of its report: one line refuses what is no run's."""

    @wraps(part)
    def read(self: Run, *arguments: Any, **options: Any) -> Part:
        with damaged(self.folder):
            return part(self, *arguments, **options)

    return read


def open_run(folder: str | Path, *, trust_plugins: bool = False) -> Run:
    """Open the folder of a run, an audit or a finished cell of a study.

    Args:
        folder: its path.
        trust_plugins: import plugins from outside (`package.module:Class`) that its settings name,
            which executes their code. Without it, `settings`, `encoder` and `images` of a run
            with such plugins are refused, and all else is read as data.

    Returns:
        The run; its parts are read when they are first asked for.

    Raises:
        InputError: the folder holds no run, or the results of another command; its settings are no
            YAML; its format is of another version.
    """
    opened = RunFolder(Path(disk_path(folder)), trust_plugins)
    tree = opened.facts()
    if "jobs" in tree:
        raise InputError(f"folder '{folder}' is no run, but of several: open one of its cells/")
    if {"mechanisms", "run"} & tree.keys():
        raise InputError(f"folder '{folder}' is no run, but of released heads or a run's tables")
    return Run(opened)


class Run:
    """What `open_run` returns. Everything is read when it is first asked for.

    Attributes:
        folder: where it lies.
    """

    def __init__(self, files: RunFolder) -> None:
        self._files = files
        self.folder = files.path

    def __repr__(self) -> str:
        return f"<Run {self.folder} ({self._state()})>"

    @_of_files
    def _repr_html_(self) -> str:
        """The run as Jupyter shows it: verdict, three answers, table of the attacks."""
        if self._state() != "finished":
            return f"<p>{escape(repr(self))}</p>"
        from fedmia.report.notebook import html_summary

        return html_summary(self.records, str(self.folder / "report.html"))

    @property
    def finished(self) -> bool:
        """Whether the run is complete.

        Raises:
            InputError: its report is damaged.
        """
        return self._files.finished() is not None

    @cached_property
    def settings(self) -> Experiment | Audit:
        """The settings that it was started with.

        Raises:
            InputError: they name a plugin from outside that is not trusted, no longer suit, or are
                of a federation and Flower is not installed.
        """
        from fedmia.settings.commands.audit import Audit
        from fedmia.settings.commands.experiment import Experiment
        from fedmia.settings.errors import prefix_errors
        from fedmia.settings.tree import from_tree

        tree = self._files.tree()
        with prefix_errors(str(config := self._files.config)), damaged(self.folder, config.name):
            if self._is_audit():
                return from_tree(Audit, tree, trust_plugins=self._files.trust is True)
            try:
                return from_tree(Experiment, tree)
            except ImportError as error:  # a strategy is Flower's
                raise InputError(
                    f"the settings of run '{self.folder}' cannot be built without {error.name}"
                ) from None

    @cached_property
    def records(self) -> Report:
        """The records of `report.json`, typed as `fedmia.records.rows` says.

        Raises:
            InputError: it was not finished.
        """
        return self._files.report()

    @property
    def verdict(self) -> str:
        """What was found, and what controls say of it, in numbers."""
        return self.records.verdict

    @property
    def verdict_code(self) -> str:
        """The verdict in a word, such as `leaks`, `not-established` or `untested`."""
        return self.records.verdict_code

    @property
    def means(self) -> str:
        """What the verdict means, in plain words."""
        return self.records.means

    @property
    def sure(self) -> str:
        """How sure that is: how many members the best attack finds, or the least that shows."""
        return self.records.sure

    @property
    def todo(self) -> str:
        """What to do next."""
        return self.records.todo

    @property
    @_of_files
    def model_card(self) -> str:
        """Sentences for a model card in plain English, of no more than the verdict allows."""
        from fedmia.report.words.card import model_card

        return model_card(self.records)

    @cached_property
    @_of_files
    def attacks(self) -> pd.DataFrame:
        """A row an attack, by `name`.

        Columns: `auc` with `low`, `high` (all attacks together), the one-sided `lower_limit`, on
        which the verdict rests, and its 95 % interval by itself `ci_low`, `ci_high`; what it adds
        to its own control, `over_control`, likewise with `_low`, `_high`, `_lower_limit`;
        `tpr_at_RATE` (also `_ci_low`, `_ci_high`) at each false-positive rate; `accuracy`,
        `precision`, `recall` at the attack's own `threshold`; a column `auc_CONTROL` for each
        control of it (`untrained`, `placebo`); `access`, `vantage`, `round`, `under_attack`,
        `queries`, `n_members`, `n_nonmembers`.
        """
        controls = {
            name: {row.name: row.auc for row in rows}
            for name, rows in self.records.controls.items()
        }
        table = [
            {
                "name": row.name,
                "auc": row.auc,
                "low": row.low,
                "high": row.high,
                "lower_limit": row.lower_limit,
                **_ends("", row.auc_ci),
                **_over_control(row.over_control),
                **_rates(row.tpr_at_fpr, row.tpr_at_fpr_ci),
                "accuracy": row.accuracy,
                "precision": row.precision,
                "recall": row.recall,
                "threshold": row.threshold,
                **{f"auc_{name}": aucs.get(row.name) for name, aucs in controls.items()},
                "access": row.access,
                "vantage": row.vantage,
                "round": row.round,
                "under_attack": row.under_attack,
                "queries": row.queries,
                "n_members": row.n_members,
                "n_nonmembers": row.n_nonmembers,
            }
            for row in self.records.attacks
        ]
        return _frame(table, "name")

    @cached_property
    @_of_files
    def clients(self) -> pd.DataFrame:
        """A row a client, by `id`, or a subject, by its name; else empty for an audit.

        Columns: `size` in images, `role`, `defence`, its `epsilon`; `auc` with `low`, `high` (all
        clients together) and `ci_low`, `ci_high`; `null_auc`, `null_ci_low`, `null_ci_high` of
        non-members who pose as its members; `n_members`, `attack` that clients are compared by.
        """
        table = []
        for row in self.records.clients:
            epsilon = row.defence and row.defence.epsilon
            table.append({
                "id": row.id if row.name is None else row.name,
                "size": row.size,
                "role": row.role,
                "defence": row.defence and row.defence.name,
                "epsilon": epsilon and epsilon.value,
                "auc": row.auc,
                "low": row.low,
                "high": row.high,
                **_ends("", row.auc_ci),
                "null_auc": row.null_auc,
                **_ends("null_", row.null_ci),
                "n_members": row.n_members,
                "attack": row.attack,
            })  # fmt: skip
        return _frame(table, "id")

    @cached_property
    @_of_files
    def rounds(self) -> pd.DataFrame:
        """A row a round, by `round`; empty for an audit.

        Columns: `under_attack`, `loss`, `knn`; for each attack `auc:ATTACK`,
        `ci_low:ATTACK`, `ci_high:ATTACK`, and for each layer of the internal attack
        `auc:internal:LAYER`: missing where the round was not scored.
        """
        table = []
        for row in self.records.rounds:
            line: dict[str, Any] = {
                "round": row.round, "under_attack": row.under_attack, "loss": row.loss,
                "knn": row.knn,
            }  # fmt: skip
            for name, auc in row.leakage.items():
                low, high = row.leakage_ci.get(name) or (None, None)
                line |= {f"auc:{name}": auc, f"ci_low:{name}": low, f"ci_high:{name}": high}
            table.append(line | {f"auc:internal:{n}": auc for n, auc in row.layers.items()})
        return _frame(table, "round")

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Every attack's score of every image, higher says member: a row an image.

        Columns: `image` (int64, its place in its data source), `truth` (bool, whether a member),
        `client` (Int64, missing for non-members), `subject` (its name, where images belong to
        subjects), `label` (int64), and a float64 column an attack.

        Raises:
            InputError: there is no scores.csv: it was not finished; or it is damaged.
        """
        return self._files.scores()

    @cached_property
    def exposed(self) -> pd.DataFrame:
        """The list of exposed members by falling score, by `rank`: as long as its bound says more.

        Columns: `attack`, whose scores they are; `image` (its place in its data source), or
        `subject` with its number of `images`; `client`, `label`, where they are known; `score`;
        `p_value`, conformal, no probability of membership; `most_false`, at most so many of the
        list down to this row are there by chance (95 %, all rows at once); `also`, other attacks
        that find it, with `;` between them; `file`, where images were shown.

        Raises:
            InputError: there is no exposed.csv: the run was not finished, or has too few
                non-members or no attack; or it is damaged.
        """
        return self._files.exposed()

    @cached_property
    @_of_files
    def table(self) -> pd.DataFrame:
        """Every number of the report, a row each, with the columns of `fedmia.table.COLUMNS`."""
        import pandas as pd

        from fedmia.table import COLUMNS

        return pd.DataFrame(self._files.table(), columns=list(COLUMNS))

    @cached_property
    def curves(self) -> Curves | None:
        """Losses of the scored images by attacked round; None where no client attacked."""
        return self._files.curves()

    @property
    @_of_files
    def figures(self) -> list[str]:
        """Names that `figure` takes; this run may have no data for some of them."""
        return sorted(self._figures())

    @_of_files
    def figure(self, name: str) -> Figure:
        """Draw one of the report's figures again.

        Raises:
            InputError: no such figure, or one of which the folder holds no data.
        """
        figures = self._figures()
        if name in NOT_KEPT:
            raise InputError(f"figure '{name}' of '{self.folder}' has no data: {NOT_KEPT[name]}")
        if name not in figures:
            raise unknown_name("figure", name, figures)
        if (figure := figures[name].draw()) is None:
            raise InputError(f"figure '{name}' of '{self.folder}' has no data")
        return figure

    def encoder(self, round: int | None = None) -> nn.Module:
        """The run's global model in evaluation mode: pixels (B, C, S, S) in [0, 1] to (B, P).

        Args:
            round: whose model; None: the one that passive attacks were scored on, the last one
                where no report says which.

        Raises:
            InputError: the folder holds no models, not that round's, or an audit's results.
        """
        from fedmia.encoders.base import load

        if self._is_audit():
            what = "read vectors alone" if self._of_vectors() else "names one"
            raise InputError(f"'{self.folder}' is an audit: it holds no model, it {what}")
        if round is None and (report := self._files.read_report_or_none()) is not None:
            round = report.utility.round
        spec = str(self.folder) if round is None else f"{self.folder}@{round}"
        encoder: nn.Module = load(spec, trust_plugins=self._files.trust).method.encoder
        return encoder.eval()

    @cached_property
    def images(self) -> Cast:
        """Read the images in their roles from the data source again; the scored ones come in the
        order of `scores.csv`: `images.pixels("scored_members")`, `images.ids("scored_members")`.

        Raises:
            InputError: the data source cannot be read again, or holds other images by now; or the
                images of an audit were arrays in memory, of another Python session; or it read
                vectors alone.
        """
        from fedmia.evaluation.audits.images import deal
        from fedmia.evaluation.audits.runs import cast_of, run_of, split_of_run

        if self._is_audit():
            if self._of_vectors():
                raise InputError(
                    f"the audit '{self.folder}' read vectors alone and has no images; `image` of "
                    "`scores` is the row among the members' vectors where `truth` is true, else "
                    "among the non-members'"
                )
            members = str(self._files.facts().get("members"))
            if session.is_session_name(members) and not session.has_class(members):
                raise InputError(
                    f"the images of the audit '{self.folder}' were arrays in memory, which cannot "
                    "be read again; index your own arrays: `image` of `scores` is the place in the "
                    "members' array where `truth` is true, else in the others'"
                )
            audit = cast("Audit", self.settings)
            if audit.members is None and (run := run_of(audit)) is not None:
                images = split_of_run(audit, run)
            else:  # at the size that its encoder got
                report = self._files.read_report_or_none()
                row = None if report is None else report.encoder
                images = deal(audit, audit.data.size or (None if row is None else row.size))
        else:
            images = cast_of(self._files, "read the data source itself")
        if not self._files.has_scores():
            return images
        truth, order = self.scores["truth"], dict[str, list[int]]()
        for role, side in (("scored_members", truth), ("scored_nonmembers", ~truth)):
            place = {image: at for at, image in enumerate(images.ids(role).tolist())}
            scored = self.scores.loc[side, "image"].tolist()
            if not place.keys() >= set(scored):
                raise InputError(
                    f"the data source no longer holds the images that '{self.folder}' was scored on"
                )
            order[role] = [place[image] for image in scored]
        return images.only(order)

    def _state(self) -> str:
        try:
            return "finished" if self.finished else "not finished"
        except InputError:
            return "damaged"

    def _is_audit(self) -> bool:
        return "encoder" in self._files.facts()

    def _of_vectors(self) -> bool:
        return self._files.facts().get("member_embeddings") is not None

    def _figures(self) -> dict[str, ReportFigure]:
        """Name -> the figure, which can be drawn again."""
        from fedmia.report.figures import draw

        every = draw.figures(self.records, self._figure_scores())
        return {name: one for name, one in every.items() if name not in NOT_KEPT}

    def _figure_scores(self) -> Evaluation:
        """The part of the scores that figures show."""
        from fedmia.records import Evaluation, ScoredAttack

        act = self.curves.act if self.curves else ""
        truth = self.scores["truth"]
        inside, outside = self.scores[truth], self.scores[~truth]
        subjects: tuple[Any, Any] = None, None
        if "subject" in self.scores:
            numbers = self.scores["subject"].astype("category").cat.codes
            subjects = numbers[truth].to_numpy(), numbers[~truth].to_numpy()
        attacks = [
            ScoredAttack(
                name=row.name,
                paper=row.paper,
                access=row.access,
                vantage=row.vantage,
                scores_members=inside[row.name].to_numpy(),
                scores_nonmembers=outside[row.name].to_numpy(),
                act=act if row.reading is not None else "",
                subjects_members=subjects[0],
                subjects_nonmembers=subjects[1],
            )
            for row in self.records.attacks
        ]
        return Evaluation(
            seed=0,  # of nulls, which the records hold
            member_ids=inside["image"].to_numpy(),
            nonmember_ids=outside["image"].to_numpy(),
            member_client=inside["client"].to_numpy("int64"),
            member_labels=inside["label"].to_numpy(),
            nonmember_labels=outside["label"].to_numpy(),
            attacks=attacks,
            curves=self.curves,
        )


def _frame(rows: list[dict[str, Any]], index: str) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows).set_index(index) if rows else pd.DataFrame()


def _ends(before: str, interval: Sequence[float] | None) -> dict[str, float | None]:
    """The ends of a 95 % interval by itself as two columns."""
    low, high = (None, None) if interval is None else interval
    return {f"{before}ci_low": low, f"{before}ci_high": high}


def _over_control(row: OverControlRow | None) -> dict[str, float | None]:
    """Columns of what an attack adds to its own control."""
    return {
        "over_control": None if row is None else row.difference,
        "over_control_low": None if row is None else row.low,
        "over_control_high": None if row is None else row.high,
        "over_control_lower_limit": None if row is None else row.lower_limit,
    }


def _rates(rates: Mapping[str, Any], intervals: Mapping[str, Any]) -> dict[str, float | None]:
    """Columns of the true-positive rates at each target."""
    columns: dict[str, float | None] = {}
    for target, rate in rates.items():
        columns |= {f"tpr_at_{target}": rate, **_ends(f"tpr_at_{target}_", intervals[target])}
    return columns
