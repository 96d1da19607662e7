"""One run's tables, figures and page, made and written: `python -m research.papers run`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.cli.command import Invocation
from fedmia.records import Curves
from fedmia.report.figures import active, canvas
from fedmia.report.page import picture, templates
from fedmia.report.publish import json_text
from fedmia.report.tables import Table
from fedmia.settings.tree import to_tree
from fedmia.storage import durable
from fedmia.storage.outfolder import OutFolder
from fedmia.storage.runfolder import RunFolder
from research.papers.claims import of_ascent
from research.papers.federated import curves, feature_pairs
from research.papers.federated.folder import open_finished_run, reopen_run
from research.papers.federated.gather import PaperResults, gather_results, numbers
from research.papers.federated.settings import Paper
from research.papers.federated.static_ascent import StaticAscentScores
from research.papers.federated.tables import markdown, plain, text_2, text_3, text_4
from research.papers.listing import TEMPLATES

ONE_ROUND = "only one evaluated round of the run was kept"
NO_CURVES = "the run kept no curves.npz: no client attacked actively to its end"
CAPTIONS: Mapping[str, str] = {
    "fig-5": "Fig. 5. Contrastive loss and cosine similarity by evaluated round.",
    "fig-6": "Fig. 6. Accuracy and AUC of the internal attack on each layer, by round; feature "
    "(dashed) is the cosine similarity attack. The classifiers are fitted on known images.",
    "fig-7": "Fig. 7. The three largest confidences of the last three layers, two at a time.",
    "fig-8": "Fig. 8. Accuracy and AUC of five methods by round. The paper does not name the four "
    "beside the combination: here its two other attacks, and the combination's loss and highest "
    "confidence alone.",
    "fig-9": "Fig. 9. The combined features, two at a time. Dashed: where the LDA fitted on known "
    "images is undecided, the third feature at its mean. Last: what it scores the images.",
    "fig-10": "Fig. 10. Loss by step of the static ascent, and its rise since before: mean, its "
    "95 % interval (dark), middle half (light).",
    "fig-11": "Fig. 11. Loss before and after the static ascent.",
    "fig-12": "Fig. 12. Accuracy of the static ascent by threshold and round.",
    "fig-13": "Fig. 13. Loss on the aggregated model while a client ascends in every round: (a) "
    "mean, its interval and middle half, what it was before the attack, and under the first "
    "upload, right after its climb; (b) the mean with ascent and without.",
}


def tables(report: Mapping[str, Any]) -> dict[str, Table]:
    """Tables II to IV, and what the paper says of ascent, by their titles."""
    run, at = f"{report['run']} ({report['data']})", f"round {report['round']}"
    return {
        f"Table II. Cosine similarity of views ({at})": text_2(report["table_2"], run),
        f"Table III. Top-3 confidences, mean ± 95 % ({at})": text_3(report["table_3"], run),
        f"Table IV. Classifiers on the combined features ({at})": text_4(report["table_4"], run),
        f"What the paper says of ascent (static: {at})": of_ascent.text(report["claims"]),
    }


def make(invocation: Invocation) -> int:
    """Open the run, compute, write; the exit code.

    Raises:
        InputError: no finished run, its data is absent, or the folder of the results is occupied.
    """
    config: Paper = invocation.settings
    folder = Path(config.run)
    main = open_finished_run(folder, config.trust_plugins)  # before a folder is made in it
    place = OutFolder(invocation.out or folder / "paper", "another run", _is_ours)
    with place:
        place.begin(to_tree(config))
        with reopen_run(main, config.device) as suite:
            results = gather_results(main, suite)
            data = str(main.records.split["data"])
        assert place.folder is not None
        report = {"run": folder.resolve().name, "data": data, **numbers(results)}
        write(place.folder, report, figures(results))
    if invocation.json:
        sys.stdout.write(json_text(report))
    elif not invocation.quiet:
        rows = (map(plain, row) for row in of_ascent.text(report["claims"]).rows)
        print(*(f"{at}: {verdict}. {numbers}" for at, _, verdict, numbers, _ in rows), sep="\n")
        print(f"Tables and figures: {place.folder / 'paper.html'}")
    return 0


def _is_ours(folder: Path) -> bool:
    return "run" in RunFolder(folder).facts()


def figures(results: PaperResults) -> dict[str, bytes | str]:
    """PNG of each figure by name, or why it could not be drawn."""
    reading, climb = results.features[results.at], results.static_ascents[results.at]
    history = results.history
    by_name: dict[str, bytes | str | None] = dict.fromkeys(CAPTIONS, ONE_ROUND)
    if len(results.features) > 1:
        by_name["fig-5"] = curves.overfitting(results.features, history)
        by_name["fig-6"] = curves.by_round(results.layers(), history, "By layer", "feature")
        by_name["fig-8"] = curves.by_round(results.methods(), history, "By method", "combined")
    by_name |= {
        "fig-7": feature_pairs.confidences(reading),
        "fig-9": feature_pairs.combined(reading),
        "fig-10": curves.by_step(climb),
        "fig-11": before_and_after(climb),
        "fig-12": curves.thresholds(results.static_ascents),
        "fig-13": NO_CURVES,
    }
    if results.curves is not None:
        by_name["fig-13"] = curves.federated(results.curves, results.strategy)
    return {name: drawing for name, drawing in by_name.items() if drawing is not None}


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


def write(folder: Path, report: dict[str, Any], drawings: Mapping[str, bytes | str]) -> None:
    """tables.json, tables.md, the figures and the page that holds them all.

    Args:
        folder: of the files.
        report: `numbers`, with the names of the run and of its data; what could not be drawn is
            added.
        drawings: what `figures` returned.
    """
    pictures = {name: drawing for name, drawing in drawings.items() if isinstance(drawing, bytes)}
    report["not_drawn"] = {
        name: drawing for name, drawing in drawings.items() if isinstance(drawing, str)
    }
    tables_by_title = tables(report)
    captioned = {name: picture(CAPTIONS[name], png) for name, png in pictures.items()}
    page = templates(TEMPLATES).get_template("paper.j2").render(
        report=report, tables=tables_by_title, captions=CAPTIONS, pictures=captioned
    )  # fmt: skip
    texts = {"tables.json": json_text(report), "tables.md": _markdown(report, tables_by_title)}
    files: dict[str, str | bytes] = {**texts, "paper.html": page}
    files |= {f"{name}.png": drawing for name, drawing in pictures.items()}
    durable.write({folder / name: content for name, content in files.items()})


def _markdown(report: Mapping[str, Any], tables_by_title: Mapping[str, Table]) -> str:
    parts = [f"# Tables of run {report['run']}\n"]
    parts += [f"## {title}\n\n{markdown(table)}" for title, table in tables_by_title.items()]
    missing = [f"- {n.replace('fig-', 'Fig. ')}: {why}" for n, why in report["not_drawn"].items()]
    return "\n".join([*parts, *(["## Not drawn\n", *missing, ""] if missing else [])])
