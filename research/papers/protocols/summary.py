"""Numbers over encoders from the numbers of each: what a switch gives where nothing is to find.

A switch gains what its accuracy has over the fair one of the same encoder. Primary are the gains on
placebo and untrained encoders: their intervals are Student's over encoders of all methods and hold
together (Bonferroni); all others are secondary, and hold together among themselves.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedmia.report.words.numbers import estimate
from fedmia.statistics.spread import clip_interval, t_interval
from research.papers.claims import FAILS, HOLDS, UNDECIDED, answer
from research.papers.protocols.pipeline import KINDS

MEASURES = ("accuracy", "auc")
PRIMARY = ("placebo", "untrained")
WORDS = {HOLDS: "gives", FAILS: "gives less", UNDECIDED: UNDECIDED}  # by verdict


def row_name(attack: str, switches: Iterable[str] = ()) -> str:
    """How the numbers of a protocol are called in the file of an encoder."""
    return ": ".join([attack, *([" + ".join(switches)] if switches else [])])


def summarise(plan: Mapping[str, Any], encoders: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means and intervals over encoders.

    Args:
        plan: `rows` (each an attack and its switches), `effect` (the smallest gain of interest).
        encoders: of each `method`, `seed` and `numbers`: kind -> protocol -> measure.

    Returns:
        `rows`: of each protocol with switches and each kind the `fair` and the `switched` accuracy
        and AUC, the `gain`, that of each method, and what follows of a primary one; `single`: of
        each protocol, fair ones without switch, and kind how far one encoder's accuracy lies from
        the mean.
    """
    protocols, methods = plan["rows"], list(dict.fromkeys(one["method"] for one in encoders))
    of_kinds = [kind for one in protocols for kind in one.get("kinds", KINDS)]
    primary = sum(kind in PRIMARY for kind in of_kinds)
    # Of each kind: two protocols and their gain, in two measures, and the gain of each method; of
    # these the primary gains are not.
    secondary = len(of_kinds) * (3 * len(MEASURES) + len(methods)) - primary
    rows = []
    for one in protocols:
        names = row_name(one["attack"]), row_name(one["attack"], one["switches"])
        for kind in one.get("kinds", KINDS):
            row: dict[str, Any] = {
                "attack": one["attack"], "switch": " + ".join(one["switches"]), "kind": kind,
                "n": len(encoders),
            }  # fmt: skip
            for measure in MEASURES:
                fair, switched = (
                    [e["numbers"][kind][name][measure] for e in encoders] for name in names
                )
                gains = [a - b for a, b in zip(switched, fair, strict=True)]
                end = "" if measure == "accuracy" else "_auc"
                is_primary = kind in PRIMARY and not end
                row[f"fair{end}"] = _interval(fair, secondary)
                row[f"switched{end}"] = _interval(switched, secondary)
                row[f"gain{end}"] = _interval(gains, primary if is_primary else secondary, -1)
                if is_primary:
                    row["verdict"] = WORDS[answer(row["gain"]["ci"], plan["effect"])]
                if not end:
                    row["by_method"] = {
                        method: _interval(
                            [g for g, e in zip(gains, encoders, strict=True)
                             if e["method"] == method], secondary, -1,
                        )
                        for method in methods
                    }  # fmt: skip
            rows.append(row)
    return {
        "n": {method: sum(e["method"] == method for e in encoders) for method in methods},
        "primary": primary,
        "secondary": secondary,
        "rows": rows,
        "single": _single(protocols, encoders),
    }


def _single(
    protocols: Sequence[Mapping[str, Any]], encoders: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """How the accuracy of one encoder lies about the mean, of every protocol and kind.

    `next` is Student's 95 % interval of one more encoder, single: what a number of one training
    may be.
    """
    singles = []
    fair = [{"attack": a, "switches": ()} for a in dict.fromkeys(p["attack"] for p in protocols)]
    for one in [*fair, *protocols]:
        name = row_name(one["attack"], one["switches"])
        for kind in one.get("kinds", KINDS):
            values = [e["numbers"][kind][name]["accuracy"] for e in encoders]
            wider = math.sqrt(len(values) + 1)  # of one value than of the mean
            mean, ci = statistics.fmean(values), t_interval(values)
            around = ci and (mean + (ci[0] - mean) * wider, mean + (ci[1] - mean) * wider)
            singles.append(
                {"attack": one["attack"], "switch": " + ".join(one["switches"]), "kind": kind}
                | {"sd": round(statistics.stdev(values), 6), "next": clip_interval(around)}
                | {"least": round(min(values), 6), "greatest": round(max(values), 6)}
            )
    return singles


def _interval(values: Sequence[float], together: int, low: float = 0.0) -> dict[str, Any]:
    ci = clip_interval(t_interval(values, together), low, 1.0)
    return {"mean": round(statistics.fmean(values), 6), "ci": ci}


def markdown(results: Mapping[str, Any]) -> str:
    """The table of a file of results.

    Args:
        results: as of `summarise`.

    Returns:
        Markdown.
    """
    heads = ("attack", "switch", "encoders", "fair", "switched", "gain", "gain, AUC", "")
    lines = [heads, ("---",) * len(heads)]
    for row in results["rows"]:
        numbers = [
            estimate(row[name]["mean"], row[name]["ci"], 3)
            for name in ("fair", "switched", "gain", "gain_auc")
        ]
        lines.append(
            (f"`{row['attack']}`", row["switch"], row["kind"], *numbers, row.get("verdict", ""))
        )
    counts = ", ".join(f"{count} {method}" for method, count in results["n"].items())
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        f"Balanced accuracy over encoders ({counts}); brackets: the {results['primary']} gains on "
        "placebo and untrained encoders at 95 % together, the others together\n\n"
        f"{text}\n"
    )
