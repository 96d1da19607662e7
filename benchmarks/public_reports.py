"""Reports of public threads: which twenty are tried, and what became of them.

    python benchmarks/public_reports.py --draw [--seed 41]   names the drawn ones
    python benchmarks/public_reports.py --table              their results, as Markdown

`plans/public_reports.yaml` lists the reports. The draw goes through them in an order that the seed
gives, and takes each whose kind was not taken twice before.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

PLAN = Path(__file__).with_name("plans") / "public_reports.yaml"


def load_plan(path: Path = PLAN) -> dict[str, Any]:
    """The plan: `draw` and `reports`, and `results` once there are any."""
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def draw(plan: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """The reports to try.

    Args:
        plan: the plan.
        seed: of the order in which reports are looked at.

    Returns:
        As many reports as the plan asks for, in the order of the list.
    """
    reports, taken, kinds = plan["reports"], [], Counter[str]()
    for place in np.random.default_rng(seed).permutation(len(reports)):
        kind = reports[place]["kind"]
        if len(taken) < plan["draw"]["cases"] and kinds[kind] < plan["draw"]["of_a_kind"]:
            taken.append(int(place))
            kinds[kind] += 1
    return [reports[place] for place in sorted(taken)]


def table(plan: dict[str, Any]) -> str:
    """The drawn reports and their results as a table of Markdown."""
    lines = ["| Thread | First sight | End | Test |", "|---|---|---|---|"]
    for report in draw(plan, plan["draw"]["seed"]):
        result = plan["results"][report["id"]]
        name = "/".join(report["thread"].split("/")[3:]).replace("/issues/", " ")
        name = name.replace("/pull/", " PR ")
        cells = [f"[{name}]({report['thread']}): {report['symptom']}"]
        cells += [result[key] for key in ("first", "end", "test")]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Reads the flags and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="print the drawn reports")
    parser.add_argument("--table", action="store_true", help="print the results")
    parser.add_argument("--seed", type=int, default=None, help="of the draw (none: the plan's)")
    args = parser.parse_args()
    plan = load_plan()
    if args.draw:
        seed = plan["draw"]["seed"] if args.seed is None else args.seed
        for report in draw(plan, seed):
            print(f"{report['id']:20} {report['kind']:16} {report['thread']}")
    if args.table:
        print(table(plan))


if __name__ == "__main__":
    main()
