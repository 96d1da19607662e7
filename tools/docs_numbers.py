"""Checks every number of the pages of docs/ and research/results/ that give results, and writes
their tables.

    python tools/docs_numbers.py [--check] [--pictures [--run RUN]]

`--check` writes nothing and fails where a table differs; `--pictures` first draws those of
docs/images of the committed report; with `--run`, its very run, also those that show scores. A page
gives results if it has one of the comments below. A number names the result file that it stands in,
by a comment after it in the same block of lines:

    kNN is .78 [.74, .83] <!-- from defences/tradeoff.json: points[label=gaussian scale=0.1].knn -->

Expressions, with `;` between them, give the numbers since the comment before in their order. A path
has keys, `[i]`, `[key=value]` (one row, or with more conditions, `,` between) and `[*]` (of every
row, or of those with `[*,key=value,key!=value]`; a value with a comma stands in `'..'`);
`100*PATH` is a percentage, `min`, `max`, `mean`, `sum`, `count` of `(PATH)` summarise; a mean with
its interval is three numbers; `set` is no result but a setting, and so are all N numbers before
`<!-- set N -->`. What is exempt stands in FREE.

`<!-- table NAME -->` stands before a table that this command writes, in the README too. A table
of docs_tables.yaml has columns, each a heading and a cell, and rows. A row is what stands at a path
`at` of the table's `file` (of each, where several do), with keys of its own; `sort` names a path
that orders them, `first` how many stay. A cell has
`{EXPRESSION|FORMAT}`, `{MEAN & INTERVAL|FORMAT}`, `{MEAN & LOW & HIGH|FORMAT}`: of the row, of its
file after `/`, or of `FILE: PATH`; `@key` in it is the row's value. FORMAT is a number of digits,
with `+` for a change, or Python's, or one of FORMATS. A cell with nothing in it is a dash; `?` lets
a path be missing.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from fedmia.records.rows import Report
from fedmia.report.figures.attacks import Forest
from fedmia.report.figures.canvas import encode
from fedmia.report.figures.draw import figures, fingerprint
from fedmia.storage.json_rows import from_json
from fedmia.storage.runfolder import RunFolder

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "research" / "results"
IMAGES = ROOT / "docs" / "images"
TABLES = Path(__file__).with_name("docs_tables.yaml")
SET, DASH = "set", "–"

# Numbers that are no results.
FREE = (
    r"`[^`\n]*`",  # names, options and their values
    r"\]\([^)]*\)",  # where a link leads
    r"\b(?:19|20)\d\d\b",  # years
    r"\b95 %",  # the level of the intervals
    r"\bp <= 0\.05\b",  # likewise, of tests
    r"\b\d+ % FPR\b",
    r"\b\d{4}\.\d{5}\b",  # arXiv
    r"\b(?:Figs?|Tables?|Secs?|Eqs?|App|Algorithm|seeds?)\b\.?(?: [\dA-Z][\w.-]*(?:,| to| and)?)+",
    r"\b[A-Za-z]\w*-\d+(?:/\d+)?\b",  # ResNet-18
)
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\d|\d)?\.?\d+(?:e[-+]?\d+)?(?!\w)")
MARKER = re.compile(r"<!-- (?:from\s+(.*?)|set\s+(\d+))\s+-->", re.DOTALL)
FIELD = re.compile(r"\{(\??)([^|}]*)(?:\|([^}]*))?\}")
TABLE = re.compile(r"<!-- table ([\w-]+) -->$", re.MULTILINE)
PAGES = tuple(
    str(page.relative_to(ROOT))
    for folder in (ROOT / "docs", RESULTS)
    for page in sorted(folder.rglob("*.md"))
    if any(kind.search(page.read_text(encoding="utf-8")) for kind in (MARKER, TABLE))
)
SUMMARIES: dict[str, Callable[[list[float]], float]] = {
    "min": min, "max": max, "mean": fmean, "sum": sum,
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """Lines without a blank one between them: number of the first one, and the text."""

    line: int
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page, without those of code."""
    page = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), page, flags=re.S | re.M)
    line = 1
    for part in re.split(r"(\n\s*\n)", page):
        if part.strip():
            yield Block(line + len(part) - len(part.lstrip("\n")), part.strip("\n"))
        line += part.count("\n")


@functools.cache
def result(name: str) -> Any:
    """A result file."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def steps(path: str) -> Iterator[str]:
    """Keys and brackets of a path in their order."""
    for step in re.finditer(r"\[([^\]]*)\]|\"([^\"]*)\"|([^.\[\"]+)", path):
        yield f"[{step[1]}" if step[1] is not None else step[2] or step[3]


def walk(value: Any, path: list[str]) -> Any:
    """What stands at a path.

    Raises:
        LookupError: nothing does, or several rows meet the conditions.
    """
    if not path:
        return value
    step, *rest = path
    if not step.startswith("["):
        return walk(value[step], rest)
    inner = step[1:]
    every, _, listed = inner.partition(",") if inner.startswith("*") else ("", "", inner)
    rows = value.values() if isinstance(value, dict) else value
    if inner.lstrip("-").isdigit():
        return walk(value[int(inner)], rest)
    for key, negated, wanted in re.findall(r"([^,=!]+)(!?)=('[^']*'|[^,]*)", listed):
        rows = [r for r in rows if (as_text(r.get(key)) == wanted.strip("'")) != bool(negated)]
    if every:
        return [walk(row, rest) for row in rows]
    if len(rows) != 1:
        raise LookupError(f"[{inner}] is true of {len(rows)} rows")
    return walk(rows[0], rest)


def as_text(value: Any) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def flat(value: Any) -> list[float]:
    """The numbers of a value; of a mean over models it and its interval."""
    if isinstance(value, dict):
        return [value["mean"], *(value["ci"] or ())]
    if isinstance(value, list | tuple):
        return [number for one in value for number in flat(one)]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LookupError(f"{value!r} is no number")
    return [float(value)]


def evaluate(value: Any, expression: str) -> Any:
    """What an expression is of a value: what stands at its path, or a summary of it."""
    scale = 100.0 if expression.startswith("100*") else 1.0
    expression = expression.removeprefix("100*")
    summary = re.fullmatch(r"(\w+)\((.*)\)", expression)
    value = walk(value, list(steps(summary[2] if summary else expression)))
    if summary and summary[1] == "count":
        return len(value)
    if summary:
        return scale * SUMMARIES[summary[1]](flat(value))
    return value if scale == 1 else [scale * number for number in flat(value)]


def values(file: str, expression: str) -> list[float | None]:
    """Numbers that an expression gives; None for a setting."""
    return [None] if expression == SET else [*flat(evaluate(result(file), expression))]


def says(token: str, value: float) -> bool:
    """Whether a printed number is `value`, rounded to the digits printed."""
    text = token.replace(",", "")
    mantissa, _, exponent = text.partition("e")
    half = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(float(text) - value) <= half * (1 + 1e-6) + 1e-12


def bare(text: str) -> str:
    """The text with all that is exempt blanked."""
    for kind in FREE:
        text = re.sub(kind, lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    return text


def complaints(name: str, page: str) -> Iterator[str]:
    """What is wrong with the numbers of a page, a line each."""
    for block in blocks(page):
        if TABLE.match(block.text):
            continue
        text, ends = block.text, 0
        for marker in MARKER.finditer(text):
            tokens = NUMBER.findall(bare(text[ends : marker.start()]))
            listed = marker[1] or "; ".join([SET] * int(marker[2]))
            yield from (f"{name}:{block.line}: {c}" for c in _compare(tokens, listed))
            ends = marker.end()
        unmarked = NUMBER.findall(bare(re.sub(r"<!--.*?-->", "", text[ends:], flags=re.S)))
        if unmarked:
            yield f"{name}:{block.line}: no result file is named for {', '.join(unmarked)}"


def _compare(tokens: list[str], marker: str) -> Iterator[str]:
    expected: list[tuple[str, float | None]] = []
    for part in marker.split("|"):
        file, _, listed = (" ".join(part.split())).rpartition(": ")
        for expression in (e.strip() for e in listed.split(";")):
            try:
                expected += [(f"{file}: {expression}", v) for v in values(file, expression)]
            except (LookupError, OSError, TypeError, ValueError) as error:
                yield f"{file}: {expression}: {error!r}"
                return
    if len(tokens) != len(expected):
        yield f"{len(tokens)} numbers ({', '.join(tokens)}) for {len(expected)} values: {marker}"
        return
    for token, (where, value) in zip(tokens, expected, strict=True):
        if value is not None and not says(token, value):
            yield f"{token} is {value:.6g} in {where}"


def short(value: float, digits: int) -> str:
    """`.69`, `1.00`, `-.12`."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.{digits}f}")


def bound(epsilon: float) -> str:
    """`8`, `3.6e3\\*`: two digits, rounded up, as it is a bound; over 20 it means little."""
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 1)
    up = math.ceil(epsilon / unit - 1e-9) * unit
    text = f"{up:.3g}" if up < 1000 else f"{up:.1e}".replace("e+0", "e").replace(".0e", "e")
    return text + "\\*" * (epsilon > 20)


def label(point: Any, *, option: bool = True) -> str:
    """`` `gaussian` scale 0.03 ``, or without the option's name."""
    if point["defense"] == "none":
        return "none"
    named = point["option"].replace("_", " ") + " " if option and point["option"] else ""
    strength = "" if point["strength"] is None else f" {named}{point['strength']:g}"
    return f"`{point['defense']}`{strength}"


def span(rounds: list[int]) -> str:
    """`2`, `3 to 8`."""
    return str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"


def choices(counts: dict[str, int]) -> str:
    """The three choices that most runs made, and how many made others."""
    texts = [f"{options} ({count})" for options, count in counts.items()]
    others = sum(list(counts.values())[3:])
    return "; ".join([*texts[:3], *([f"others ({others})"] if others else [])]) or "-"


def p_value(p: float | None) -> str:
    """`0.0080`, `5e-05`."""
    return "-" if p is None else f"{p:.4f}" if p >= 1e-4 else f"{p:.0e}"


# Those of WHOLE take what has no number.
WHOLE = ("choices", "code", "label", "leaks", "p", "question", "span", "strength")
FORMATS: dict[str, Callable[[Any], str]] = {
    "": lambda value: str(value).replace("(R)", ""),
    "bound": bound,
    "choices": choices,
    "code": lambda name: f"`{name}`" if name else "none",
    "label": label,
    "leaks": lambda verdicts: str(verdicts.get("leaks", 0)),
    "p": p_value,
    "question": lambda row: row["question"] if row["kind"] == "primary" else "secondary",
    "minutes": lambda seconds: f"{seconds / 60:.1f}",
    "span": span,
    "strength": functools.partial(label, option=False),
}


def show(value: Any, interval: Any, form: str) -> str | None:
    """A value in a format; None where there is none."""
    if form in WHOLE:
        return FORMATS[form](value)
    if isinstance(value, dict):
        value, interval = value["mean"], value["ci"]
    if isinstance(value, list):
        joined = " / " if form == " / " else ", "
        return joined.join(show(v, None, form.removeprefix(" / ")) or DASH for v in value) or None
    if value is None or form in FORMATS:
        return None if value is None else FORMATS[form](value)
    sign, digits = re.fullmatch(r"(\+?)(\d)?.*", form).groups()  # type: ignore[union-attr]
    ours = digits is not None and form == sign + digits
    texts = [short(v, int(digits)) if ours else format(v, form) for v in (value, *(interval or ()))]
    plus = "+" if ours and sign and value >= 0 else ""
    return plus + texts[0] + (f" [{', '.join(texts[1:])}]" if interval else "")


def fill(template: str, row: Any, file: str) -> str:
    """A cell of a table: a template with what its fields name.

    Args:
        template: text with fields in braces.
        row: what paths begin at.
        file: what paths that begin with `/` begin at.
    """

    def field(match: re.Match[str]) -> str:
        optional, *texts = match[1], match[2], match[3] or ""
        listed, form = (re.sub(r"@(\w+)", lambda key: as_text(row[key[1]]), t) for t in texts)
        parts: list[Any] = []
        for expression in listed.split(" & "):
            name, _, path = expression.rpartition(": ")
            whole, path = bool(name) or "/" in path, path.replace("/", "", 1)
            try:
                parts.append(evaluate(result(name or file) if whole else row, path))
            except (LookupError, ValueError):
                if not optional:
                    raise
                return "\0"
        interval = parts[1] if len(parts) == 2 else parts[1:]  # as a pair, or its two ends
        return show(parts[0], interval or None, form) or "\0"

    cell = FIELD.sub(field, FIELD.sub(field, template))  # a key of a row may have fields, too
    return DASH if "\0" in cell else cell


def rows_of(spec: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """Each row of a table, and the file that it is of."""
    listed = spec["rows"] if isinstance(spec["rows"], list) else [{"at": spec["rows"]}]
    for own in listed:
        name, _, path = own.get("at", "").rpartition(": ")
        file = name or spec.get("file", "")
        at_path = evaluate(result(file), path) if "at" in own else {}
        for row in at_path if isinstance(at_path, list) else [at_path]:
            yield {**row, **own}, file


def make_table(name: str) -> str:
    """A table of docs_tables.yaml, without a last newline."""
    spec = yaml.safe_load(TABLES.read_text(encoding="utf-8"))[name]
    columns: dict[str, str] = {}
    for head, cell in spec["columns"].items():
        if not isinstance(cell, dict):
            columns[head] = cell
            continue
        for one in cell["for"]:
            columns[head.replace("*", one)] = cell["cell"].replace("@column", one)
    rows = list(rows_of(spec))
    if "sort" in spec:
        rows.sort(key=lambda row: -evaluate(row[0], spec["sort"]))
    rows = rows[: spec.get("first")]
    lines = [[fill(cell, *row) for cell in columns.values()] for row in rows]
    lines += [[fill(cell, {}, "") for cell in more] for more in spec.get("more", ())]
    return "\n".join(
        "| " + " | ".join(line) + " |"
        for line in [[head.strip() for head in columns], ["---"] * len(columns), *lines]
    )


def written(page: str, make: Callable[[str], str] = make_table) -> str:
    """The page with its tables made anew, each by its name."""

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n{make(match[2])}\n"

    return re.sub(r"(<!-- table ([\w-]+) -->)\n(?:\|.*\n)*", table, page)


def default_report() -> Report:
    """The report whose numbers the pages have."""
    return from_json(Report, result("default/report.json"), "report")


def draw_pictures(run: Path | None) -> None:
    """Draw the pictures of docs/images anew, small enough for the repository; each says of which
    report it is, and what it shows.

    Args:
        run: whose figures are copied; None: those that show scores stay, as no file holds them.

    Raises:
        SystemExit: the run is not the one whose numbers the pages have.
    """
    report = default_report()
    if run is not None and fingerprint(RunFolder(run).report()) != fingerprint(report):
        sys.exit(f"{run} is another run than research/results/default/report.json")
    drawn = figures(report)
    for old in sorted((IMAGES / "gallery").glob("*.png")):
        if run is not None:
            picture = Image.open(run / "figures" / old.name)
        elif old.stem in drawn and (figure := drawn[old.stem].draw()) is not None:
            about = {"Description": drawn[old.stem].alt()}
            picture = Image.open(io.BytesIO(encode(figure, text=about)))
        else:
            continue
        text = PngInfo()
        text.add_text("Report", fingerprint(report))
        text.add_text("Description", picture.info["Description"])
        width = min(900, picture.width)
        size = (width, round(picture.height * width / picture.width))
        small = picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        small.quantize(64).save(old, optimize=True, pnginfo=text)
    short = short_forest(report)
    about = {"Report": fingerprint(report), "Description": short.alt()}
    if (figure := short.draw()) is not None:
        (IMAGES / "forest.png").write_bytes(encode(figure, text=about))


def short_forest(report: Report) -> Forest:
    """The figure of the README's attacks, without their controls, which its table has."""
    rows = yaml.safe_load(TABLES.read_text(encoding="utf-8"))["readme"]["rows"]
    named = [row["is"] for row in rows]
    attacks = [row for row in report.attacks if row.name in named]
    return Forest(replace(report, attacks=attacks, paired=[], controls={}, pixels=None))


def main() -> int:
    """Write the tables and check the numbers; returns 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--pictures", action="store_true", help="draw docs/images anew")
    parser.add_argument("--run", type=Path, help="that --pictures copies figures of scores from")
    arguments = parser.parse_args()
    if arguments.pictures:
        draw_pictures(arguments.run)
    wrong: list[str] = []
    for name in ("README.md", *PAGES):
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        page = written(before)
        if not arguments.check:
            path.write_text(page, encoding="utf-8")
        elif page != before:
            wrong.append(f"{name}: a table is not that of its file")
        if name in PAGES:
            wrong += complaints(name, page)
    print("\n".join(wrong) or "every number of these pages is that of its file")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
