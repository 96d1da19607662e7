"""One run's tables, figures and page, made and written: `python -m fedmia.paper`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.console import Console

from fedmia.cli.command import Invocation
from fedmia.config.paper import Paper
from fedmia.config.tree import to_tree
from fedmia.options.errors import InputError, opt
from fedmia.options.yamlfile import load
from fedmia.papers import claims, curves, scatter3d
from fedmia.papers.folder import open_finished_run, reopen_run, settings
from fedmia.papers.gather import PaperResults, gather_results, numbers
from fedmia.papers.static_ascent import StaticAscentScores
from fedmia.papers.tables import markdown, plain, text_2, text_3, text_4
from fedmia.records import Curves
from fedmia.report.figures import active, canvas
from fedmia.report.page import templates
from fedmia.report.publish import json_text
from fedmia.report.tables import Table
from fedmia.storage.outfolder import OutFolder
from fedmia.study.view import View

ONE_ROUND = "only one evaluated round of the run was kept"
NO_CURVES = "the run kept no curves.npz: no client attacked actively to its end"
CAPTIONS: Mapping[str, str] = {
    "fig-5": "Fig. 5. Contrastive loss and cosine similarity by evaluated round.",
    "fig-6": "Fig. 6. Accuracy and AUC of the internal attack on each layer, by round; feature "
    "(dashed) is the cosine similarity attack. The classifiers are fitted on known images.",
    "fig-7": "Fig. 7. The three largest confidences of the last three layers.",
    "fig-8": "Fig. 8. Accuracy and AUC of five methods by round. The paper does not name the four "
    "beside the combination: here its two other attacks, and the combination's loss and highest "
    "confidence alone.",
    "fig-9": "Fig. 9. The combined features, and the plane of the LDA fitted on known images.",
    "fig-10": "Fig. 10. Loss by step of the static ascent, and its rise since before: mean, its "
    "95 % interval (dark), middle half (light).",
    "fig-11": "Fig. 11. Loss before and after the static ascent.",
    "fig-12": "Fig. 12. Accuracy of the static ascent by threshold and round.",
    "fig-13": "Fig. 13. Loss on the aggregated model while a client ascends in every round: (a) "
    "mean, its interval and middle half, what it was before the attack, and under the first "
    "upload, right after its climb; (b) by aggregation, with ascent and without.",
}


@dataclass(frozen=True)
class PaperView(View):
    """Tables II to IV, what the paper says of ascent, and Figs. 5 to 13, of one run."""

    captions: ClassVar[Mapping[str, str]] = CAPTIONS

    def report(self, study: Any) -> dict[str, Any]:
        """The numbers of what was gathered of one run (`fedmia.papers.gather.Found`)."""
        return numbers(study)

    def tables(self, report: Mapping[str, Any]) -> dict[str, Table]:
        """By their titles."""
        run, at = f"{report['run']} ({report['data']})", f"round {report['round']}"
        return {
            f"Table II. Cosine similarity, top-3 pairwise ({at})": text_2(report["table_2"], run),
            f"Table III. Top-3 confidences, mean ± 95 % ({at})": text_3(report["table_3"], run),
            f"Table IV. Classifiers on the combined features ({at})": text_4(
                report["table_4"], run
            ),
            f"What the paper says of ascent (static: {at})": claims.text(report["claims"]),
        }


def make(asked: Invocation) -> int:
    """Open the run, compute, write; the exit code.

    Raises:
        InputError: no finished run, its data is absent, or the folder of the results is occupied.
    """
    wanted: Paper = asked.settings
    folder = Path(wanted.run)
    main = open_finished_run(folder, wanted.trust_plugins)  # before a folder is made in it
    place = OutFolder(asked.out or folder / "paper", "another run", lambda c: "run" in load(c))
    beside = compared(wanted, settings(main).strategy.name)
    with reopen_run(main, wanted.device) as run:
        found = gather_results(run, beside)
        data = run.evaluation.run.prepared.data.name
    place.begin(to_tree(wanted))
    assert place.folder is not None
    told = {"run": folder.resolve().name, "data": data, **PaperView().report(found)}
    write(place.folder, told, figures(found))
    if asked.json:
        sys.stdout.write(json_text(told))
    elif not asked.quiet:
        page = place.folder / "paper.html"
        rows = (map(plain, row.cells) for row in claims.text(told["claims"]).rows)
        text_lines = [f"{place}: {verdict}. {numbers}" for place, _, verdict, numbers, _ in rows]
        text_lines.append(f"Tables and figures: {page}")
        Console().print(*text_lines, sep="\n", markup=False, highlight=False, soft_wrap=True)
    return 0


def compared(wanted: Paper, own: str) -> dict[str, Curves]:
    """Curves of the runs of `beside`, by strategy, and by folder where that names another too.

    Raises:
        InputError: one is no finished run, or kept no curves.
    """
    found: dict[str, Curves] = {}
    for text in wanted.beside:
        run = open_finished_run(Path(text), wanted.trust_plugins)
        if run.curves is None:
            raise InputError(f"{opt('beside', text)}: {NO_CURVES}")
        name = settings(run).strategy.name
        found[f"{name} ({run.folder.name})" if name in {own, *found} else name] = run.curves
    return found


def figures(found: PaperResults) -> dict[str, bytes | str]:
    """PNG of each figure by name, or why it could not be drawn."""
    reading, climb, history = (
        found.features[found.at],
        found.static_ascents[found.at],
        found.history,
    )
    made: dict[str, bytes | str | None] = dict.fromkeys(CAPTIONS, ONE_ROUND)
    if len(found.features) > 1:
        made["fig-5"] = curves.overfitting(found.features, history)
        made["fig-6"] = curves.by_round(found.layers(), history, "By layer", "feature")
        made["fig-8"] = curves.by_round(found.methods(), history, "By method", "combined")
    made |= {
        "fig-7": scatter3d.confidences(reading),
        "fig-9": scatter3d.combined(reading),
        "fig-10": curves.by_step(climb),
        "fig-11": before_and_after(climb),
        "fig-12": curves.thresholds(found.static_ascents),
        "fig-13": NO_CURVES,
    }
    if found.curves is not None:
        made["fig-13"] = curves.federated(found.curves, found.by_strategy)
    return {name: held for name, held in made.items() if held is not None}


def before_and_after(climb: StaticAscentScores) -> bytes | None:
    """Fig. 11: the losses before the first and after the last step of the climb."""
    if climb.members is None or climb.nonmembers is None:
        return None
    (before, *_, after), (before_others, *_, after_others) = climb.members, climb.nonmembers
    return canvas.drawn(active.distributions)(
        Curves(
            act="static ascent",
            rounds=np.arange(len(climb.members)),
            members=climb.members,
            nonmembers=climb.nonmembers,
            before_members=before,
            before_nonmembers=before_others,
            after_members=after,
            after_nonmembers=after_others,
        )
    )


def write(folder: Path, told: dict[str, Any], drawn: Mapping[str, bytes | str]) -> None:
    """tables.json, tables.md, the figures and the page that holds them all.

    Args:
        told: `numbers`, with the names of the run and of its data; what could not be drawn is
            added.
        drawn: what `figures` returned.
    """
    pictures = {name: held for name, held in drawn.items() if isinstance(held, bytes)}
    told["not_drawn"] = {name: held for name, held in drawn.items() if isinstance(held, str)}
    view = PaperView()
    named = view.tables(told)
    page = templates().get_template("paper.j2").render(
        told=told, tables=named, captions=CAPTIONS, pictures=view.pictures(pictures)
    )  # fmt: skip
    files = {"tables.json": json_text(told).encode(), "tables.md": _markdown(told, named).encode()}
    files |= {f"{name}.png": held for name, held in pictures.items()}
    for name, held in (files | {"paper.html": page.encode()}).items():
        (folder / name).write_bytes(held)


def _markdown(told: Mapping[str, Any], named: Mapping[str, Table]) -> str:
    parts = [f"# Tables of run {told['run']}\n"]
    parts += [f"## {title}\n\n{markdown(table)}" for title, table in named.items()]
    missing = [f"- {n.replace('fig-', 'Fig. ')}: {why}" for n, why in told["not_drawn"].items()]
    return "\n".join([*parts, *(["## Not drawn\n", *missing, ""] if missing else [])])
