"""`python -m research.papers --list`: every table, and what is left out. Reads YAML alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedmia.runtime.heartbeat import format_seconds
from fedmia.settings.yamlfile import load

FOLDER = Path(__file__).with_name("tables")
TEMPLATES = Path(__file__).with_name("templates")  # `fedmia.report.page.templates` reads them
SECONDS = Path(__file__).with_name("seconds.yaml")  # of each scale, as a run of it wrote them
SMOKE = "smoke"  # the scale of made-up images
TIMES = """At smoke images are made up: no data set's name, no number and no claim of the paper.
In brackets: how long all jobs of a table take, one after another. Tables share jobs.
A scale that is not named was not measured."""

PROTOCOLS = """python -m research.papers protocols: what departures from a fair protocol, as the
five papers and their public code make them, find where there is no membership."""


@functools.cache  # files of the package do not change while the process runs
def read_files() -> Mapping[str, Any]:
    """What the file of each paper holds, by the paper's name."""
    return {p.stem: load(p) for p in sorted(FOLDER.glob("*.yaml")) if p.stem != "sources"}


@functools.cache  # read for every cell
def read_sources() -> Mapping[str, Any]:
    """The data sets by name: section `data` of the settings, and the file that they need."""
    return load(FOLDER / "sources.yaml")


def list_page() -> str:
    """Every table by paper, what a scale leaves out of it, and what no table shows."""
    times = load(SECONDS)
    lines = ["Tables (python -m research.papers TABLE)", TIMES]
    for scale, here in times.items():
        together = f"{len(here['tables'])} tables together take {format_seconds(here['all'])}"
        lines.append(f"At {scale} {together}, on {here['made_on']}.")
    for paper, file in read_files().items():
        lines += ["", f"{paper}: {file['title']}", *(f"  {text}" for text in _limits(file))]
        for name, entry in file["entries"].items():
            took = ((scale, here["tables"].get(name)) for scale, here in times.items())
            known = ", ".join(f"{scale} {format_seconds(t)}" for scale, t in took if t is not None)
            title = f"{entry['place']}: {entry['title']} ({known or 'not measured'})"
            lines += [f"  {name:32} {title}", *(f"  {'':32} {text}" for text in _limits(entry))]
        lines += [f"  left out: {what}: {why}" for what, why in file.get("left_out", {}).items()]
    files = [f"{name} ({one['file']})" for name, one in read_sources().items() if "file" in one]
    return "\n".join([*lines, "", PROTOCOLS, "", f"Files in --data-dir: {', '.join(files)}."])


def _limits(entry: Mapping[str, Any]) -> Iterator[str]:
    at_smoke = entry.get("scales", {}).get(SMOKE, {})
    if len(rows := entry.get("rows", ())) > 1 and not {"rows", "not_run"} & set(at_smoke):
        yield f"{SMOKE}: only the last of {len(rows)} rows (every row takes the same path)"
    for scale, here in entry.get("scales", {}).items():
        if "not_run" in here:
            yield f"{scale}: not run: {here['not_run']}"
            continue
        for axis in ("rows", "columns"):
            if axis in here:
                rest = [one["label"] for one in entry[axis] if one["label"] not in here[axis]]
                run, others = "; ".join(here[axis]), "; ".join(rest)
                only = f"only {run} (the rest: {here['reason']})"
                without = f"not {others} ({here['reason']})"
                yield f"{scale}: {min(only, without, key=len)}"
