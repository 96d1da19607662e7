"""`fedmia diff`: what differs between two runs, in settings, versions, plugins and numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmia.cli.command import Invocation, answer_page, run
from fedmia.cli.commands import COMMANDS

if TYPE_CHECKING:
    from fedmia.storage.runfolder import RunFolder
    from fedmia.table import Row

MOST = 20  # numbers that the terminal shows
ABSENT = "(absent)"
Difference = dict[str, Any]  # `what`, `before`, `after`


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, or 2 bad input."""
    flags = answer_page(COMMANDS["diff"], sys.argv[1:] if argv is None else argv)
    return flags if isinstance(flags, int) else run(COMMANDS["diff"], flags, run_command)


def run_command(invocation: Invocation) -> int:
    """Print what differs between two runs; returns the exit code 0.

    Args:
        invocation: what the user asked for; its settings are a `Diff`.

    Raises:
        InputError: a folder holds no finished run.
    """
    from fedmia.report.publish import json_text
    from fedmia.storage.runfolder import RunFolder

    settings = invocation.settings
    parts = compare(*(RunFolder(Path(name)) for name in (settings.before, settings.after)))
    if invocation.json:
        sys.stdout.write(json_text(parts))
    else:
        print("\n".join(describe(parts, settings.before, settings.after)))
    return 0


def compare(before: RunFolder, after: RunFolder) -> dict[str, list[Difference]]:
    """What differs between two finished runs or audits.

    Args:
        before: the folder of one.
        after: the folder of the other.

    Returns:
        `verdict`, `settings`, `versions`, `hardware`, `plugins` (by the hash of their file) and
        `numbers`, those of the attacks first: a list of differences each, empty where the runs
        agree.

    Raises:
        InputError: a folder holds no finished run.
    """
    folders = before, after
    reports = [folder.report() for folder in folders]
    places = [folder.place() for folder in folders]
    versions = [{**p.get("versions", {}), "commit": p.get("commit")} for p in places]
    return {
        "verdict": _differences(*({"verdict": report.verdict_code} for report in reports)),
        "settings": _differences(*(_leaves(folder.facts()) for folder in folders)),
        "versions": _differences(*versions),
        "hardware": _differences(*(_leaves(p.get("hardware", {})) for p in places)),
        "plugins": _differences(*(p.get("plugins", {}) for p in places)),
        "numbers": _numbers(*(folder.table() for folder in folders)),
    }


def describe(parts: Mapping[str, Sequence[Difference]], before: str, after: str) -> list[str]:
    """The lines that the terminal shows of a comparison.

    Args:
        parts: as `compare` returns them.
        before: name of one run.
        after: name of the other.

    Returns:
        A line a difference under a line a part; of many numbers the first, and how many there
        are.
    """
    lines = [f"before: {before}", f"after: {after}"]
    for name, differences in parts.items():
        printed = differences[:MOST] if name == "numbers" else differences
        lines.append(f"{name}: {f'{len(differences)} differ' if differences else 'the same'}")
        lines += [f"  {d['what']}: {_text(d['before'])} -> {_text(d['after'])}" for d in printed]
        if more := len(differences) - len(printed):
            lines.append(f"  and {more:,} more; --json prints all")
    return lines


def _leaves(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Every value of a nested mapping by its dotted path."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            leaves |= _leaves(value, f"{path}{name}.")
        else:
            leaves[f"{path}{name}"] = value
    return leaves


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    return [
        {"what": name, "before": before.get(name, ABSENT), "after": after.get(name, ABSENT)}
        for name in dict.fromkeys(chain(before, after))
        if before.get(name, ABSENT) != after.get(name, ABSENT)
    ]


def _numbers(before: Sequence[Row], after: Sequence[Row]) -> list[Difference]:
    """Numbers that differ, in the order of the reports; those that one run alone has last."""
    sides = [{_place(row): row["value"] for row in rows} for rows in (before, after)]
    return sorted(_differences(*sides), key=lambda one: ABSENT in (one["before"], one["after"]))


def _place(row: Row) -> str:
    """What a number is and of what: `attack combined, round 24: auc`."""
    from fedmia.table import KEY

    known = {name: row[name] for name in KEY if row[name] is not None}
    metric, subject = known.pop("metric"), known.pop("subject", "report")
    of = [str(subject), *(f"{name} {value}" for name, value in known.items() if name != "family")]
    return f"{', '.join(of)}: {metric}"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
