"""Does ascent add anything? What several sweeps say, with one correction for all that was tried.

    python benchmarks/ascent.py NAME=SWEEP/sweep.json .. [--out benchmarks/results/ascent]

Each row is an ascent at one setting, on images or on sets, less the same attack without its climb:
mean over federations, t interval, p, and Holm's p over all rows of all sweeps. NAME is the data. An
attack that a sweep repeats, as static ascent on the same models, is one row. Where a setting has
one federation there is no p, and the interval is over its images. Writes `answer.json`,
`answer.md` and `answer.png`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedmia.report.rows import Interval
from fedmia.runtime.environment import describe
from fedmia.sweeping.points import grouped
from fedmia.sweeping.spread import holm, p_value, spread

RESULTS = Path(__file__).parent / "results" / "ascent"
Row = dict[str, Any]


def rows(data: str, sweep: dict[str, Any]) -> Iterator[Row]:
    """What each ascent adds at each point of a sweep, model by model."""
    for held in grouped(sweep["cells"]).values():
        told: dict[tuple[str, str], list[tuple[float, float, Interval]]] = {}
        for cell in held:
            if (found := cell["results"]) is None:
                raise SystemExit(f"{data}: run {cell['name']} is {cell['state']}")
            aucs = {a["name"]: a["auc"] for a in found["attacks"]}
            for pair in found["pairs"]:
                key = pair["attack"], "image"
                found_here = aucs[pair["attack"]], pair["difference"], pair["ci"]
                told.setdefault(key, []).append(found_here)
            for one in found["sets"]:
                if one["judged"] == "alone":
                    key = one["attack"], f"set of {one['size']}"
                    beside = one["control"]
                    found_here = one["auc"], beside["difference"], beside["difference_ci"]
                    told.setdefault(key, []).append(found_here)
        for (attack, level), values in told.items():
            aucs, added, over_images = zip(*values, strict=True)
            yield {
                "data": data, "attack": attack, "setting": setting(held[0]["grid"], attack),
                "level": level, "auc": spread(aucs), "added": spread(added, -1.0),
                "by_model": list(added), "p": p_value(added),
                "over_images": over_images[0] if len(added) == 1 else None,
            }  # fmt: skip


def setting(grid: dict[str, Any], attack: str) -> str:
    """What a point sets for an attack, briefly; static ascent climbs after the federation."""
    skipped = {"attacks"} | ({"federation.attacked_rate"} if attack == "ascent-static" else set())
    own = {k.split(".")[-1]: v for k, v in grid.items() if k not in skipped}
    return ", ".join(f"{k} {v}" for k, v in own.items()) or "default"


def corrected(found: Sequence[Row]) -> list[Row]:
    """Each once, with Holm's p over all."""
    once = list({(r["data"], r["attack"], r["level"], *r["by_model"]): r for r in found}.values())
    adjusted = holm([r["p"] for r in once])
    return [r | {"p_holm": p} for r, p in zip(once, adjusted, strict=True)]


def cells(row: Row) -> list[str]:
    """A row of the table."""
    added, ci = row["added"], row["added"]["ci"] or row["over_images"]
    between = f" [{ci[0]:+.3f}, {ci[1]:+.3f}]" if ci else ""
    between += " (images)" if row["over_images"] else ""
    ps = ["-" if row[k] is None else f"{row[k]:.3f}" for k in ("p", "p_holm")]
    auc, models = f"{row['auc']['mean']:.3f}", str(added["n"])
    head = [row["data"], f"`{row['attack']}`", row["setting"], row["level"], models, auc]
    return [*head, f"{added['mean']:+.3f}{between}", *ps]


HEAD = ["data", "attack", "setting", "of", "models", "AUC", "added, 95 %", "p", "Holm"]


def markdown(found: Sequence[Row]) -> str:
    """The table as the findings show it."""
    lines = [HEAD, ["---"] * len(HEAD), *(cells(row) for row in found)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def picture(found: Sequence[Row]) -> Figure:
    """What each adds: a dot a model, a ring at the mean, a bar over its interval."""
    figure = Figure(figsize=(9, 0.9 + 0.3 * len(found)), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(found):
        colour = "#b2442f" if row["level"] == "image" else "#2f6db2"
        if ci := row["added"]["ci"] or row["over_images"]:
            axes.plot(ci, [place] * 2, color=colour, linewidth=4, alpha=0.35)
        axes.plot(row["by_model"], [place] * len(row["by_model"]), ".", color=colour)
        axes.plot([row["added"]["mean"]], [place], "o", color=colour, markerfacecolor="none")
    names = [f"{r['data']}, {r['attack']}, {r['setting']}, {r['level']}" for r in found]
    axes.set_yticks(range(len(found)), names, fontsize=8)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.axvline(0, color="#777777", linewidth=1, linestyle="--", zorder=0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("AUC less that of the same attack without its climb")
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    """Merge, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sweeps", nargs="+", metavar="NAME=SWEEP.json")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(argv)
    found = list[Row]()
    for name, path in (one.split("=", 1) for one in given.sweeps):
        found += rows(name, json.loads(Path(path).read_text()))
    found = corrected(found)
    given.out.mkdir(parents=True, exist_ok=True)
    about = describe()
    answer = {"tests": sum(r["p"] is not None for r in found), "rows": found}
    answer |= {"versions": about["versions"], "hardware": about["hardware"]}
    (given.out / "answer.json").write_text(json.dumps(answer, indent=1) + "\n")
    (given.out / "answer.md").write_text(markdown(found))
    picture(found).savefig(given.out / "answer.png", dpi=120)
    print(markdown(found), end="")


if __name__ == "__main__":
    main()
