"""Reference pages of what fedmia writes: report.json, the table, a run's folder, codes."""

from __future__ import annotations

import functools
import inspect
import json
import re
from pathlib import Path
from typing import Any, get_type_hints

from mdtext import entries, escape, sections, table
from python_pages import statistics_paths

import fedmia.recording.format
import fedmia.table
from fedmia.recording.format import (
    ATTACKER,
    CAST,
    FORMAT,
    HEADER,
    ROUNDS,
    Header,
    RecordedRound,
    json_schema,
)
from fedmia.records import rows
from fedmia.records.fields import fields_of
from fedmia.records.json_schema import TYPES, Schema, schema, type_schema
from fedmia.report import judgement
from fedmia.storage import manifest
from fedmia.table import declared

ROOT = Path(fedmia.__file__).parents[1]


def row_types() -> list[Any]:
    """The rows of report.json, `Report` first, in the order in which they are reached."""
    order: list[Any] = []
    todo: list[Any] = [rows.Report]
    while todo:
        one = todo.pop(0)
        if one not in order:
            order.append(one)
            todo += [field.record for field in fields_of(one).values() if field.record]
    return order


def type_text(schema: Schema) -> str:
    """A type as a reader of JSON knows it: `list[AttackRow]`, `number | null`."""
    match schema:
        case {"$ref": place}:
            return place.rpartition("/")[2]
        case {"anyOf": kinds}:
            return " | ".join(map(type_text, kinds))
        case {"type": "array", "items": one}:
            return f"list[{type_text(one)}]"
        case {"type": "object", "additionalProperties": one} if one:
            return f"object[{type_text(one)}]"
        case {"type": [*names]}:
            return " | ".join(names)
    return str(schema["type"])


def type_cell(hint: Any) -> str:
    """The type of a field, which leads to the row that it holds."""
    defs: Schema = {}
    text = f"`{type_text(type_schema(hint, defs))}`"
    row = next(iter(defs), None)
    return f"[{text}](#{row.lower()})" if row else text


@functools.cache
def function_link(path: str) -> str:
    """A link to the function that computes a number: to its page, or else to its file."""
    names = path.split(".")
    dotted = f"fedmia.{path}"
    if dotted in (one for _, paths in statistics_paths() for one in paths):
        return f"{{py:func}}`{names[-1]} <{dotted}>`"
    ends = range(len(names), 0, -1)
    files = ("/".join(("fedmia", *names[:end])) + ".py" for end in ends)
    file = next(file for file in files if (ROOT / file).is_file())
    return f"[`{names[-1]}`](../../{file})"


def report_page() -> str:
    """The page of report.json."""
    doc = (rows.__doc__ or "").split("\n\n")
    lines = ["# report.json", "", escape(doc[1]).replace("\n", " "), "",
             "`Report` is the whole file, and `Run.records` in Python, where a field is an "
             f"attribute. This is format {rows.FORMAT}; no other is read. "
             "[What each number measures](#metrics-by-subject), [JSON Schema](#json-schema).",
             "", verdicts(), ""]  # fmt: skip
    for record in row_types():
        lines += [f"## {record.__name__}", "", escape(inspect.getdoc(record) or ""), ""]
        hints = get_type_hints(record)
        cells = [
            (f"`{name}`", type_cell(hints[name]), escape(field.unit), escape(field.help),
             function_link(field.by) if field.by else "")
            for name, field in fields_of(record).items()
        ]  # fmt: skip
        lines += [table(("Field", "Type", "Unit", "Meaning", "Computed by"), cells), ""]
    return "\n".join([*lines, metrics(), report_schema()])


def metrics() -> str:
    """Every number of the table by its subject."""
    places: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for place, field, columns in declared():
        subject = columns["subject"]
        key = (subject, columns["metric"], field.unit, field.help)
        places.setdefault(subject.partition("/")[0], {}).setdefault(key, []).append(place)
    lines = ["## Metrics by subject", "",
             "Every number that [the table](table.md) can hold, by its columns `subject` and "
             "`metric`, and where report.json has it. `{name}` stands for the value of a field or "
             "for a key, `[]` for each row of a list; a part of a subject that is null is left "
             "out. Intervals and p-values stand in the row of their number.", ""]  # fmt: skip
    for name, numbers in places.items():
        cells = [
            (f"`{subject}`", f"`{metric}`", escape(unit), escape(help),
             ", ".join(f"`{one}`" for one in where))
            for (subject, metric, unit, help), where in numbers.items()
        ]  # fmt: skip
        head = ("Subject", "Metric", "Unit", "Meaning", "In report.json")
        lines += [f"### {name}", "", table(head, cells), ""]
    return "\n".join(lines)


def report_schema() -> str:
    """The JSON Schema of report.json, a line for each field."""
    whole, lines = schema(rows.Report, manifest.REPORT), list[str]()

    def line(value: Any) -> str:
        lines.append(json.dumps(value))
        return f"@{len(lines) - 1}"

    whole["$defs"] = {
        name: {**row, "required": line(row["required"]),
               "properties": {field: line(one) for field, one in row["properties"].items()}}
        for name, row in whole["$defs"].items()
    }  # fmt: skip
    text = re.sub(r'"@(\d+)"', lambda at: lines[int(at[1])], json.dumps(whole, indent=1))
    return f"## JSON Schema\n\n```json\n{text}\n```\n"


VERDICTS = {
    "leaks": "An attack's simultaneous interval lies over 0.5, and its difference to its own "
    "control over 0, or an attack on whole data sets detects one; and every control holds.",
    "leaks-uncontrolled": "The same, but no such attack has a control on the same images: the two "
    "sets may differ by themselves. Run with a control.",
    "shift": "Pixels alone, without the model, tell members from non-members: the two sets differ, "
    "so no attack can show what training left behind. Take sets of one source.",
    "control-failed": "An attack succeeds where there is nothing to leak. The result says nothing "
    "about training until you know why.",
    "collapsed": "No leak, of an encoder that gives all images one output. It says nothing about "
    "an encoder that works.",
    "untested": "No attack has scores: all broke, none could run, or nodes keep the scores.",
    "no-verdict": "The run ended before its first round, so there is no trained model to judge.",
    "not-established": "No attack lies over 0.5 and over its control. This does not show that "
    "nothing leaks: look at the smallest leak that so many images could have shown.",
}


def verdicts() -> str:
    """The table of `verdict_code`, in the order of the tests."""
    doc = inspect.getdoc(judgement.verdict_code) or ""
    order = re.findall(r"`([a-z-]+)`", doc[doc.index("Returns:") :])
    cells = [(f"`{code}`", escape(VERDICTS[code])) for code in order]
    head = ("Code", "Meaning")
    return "(verdict-codes)=\n## Verdict codes\n\nTried in this order:\n\n" + table(head, cells)


def table_page() -> str:
    """The page of the table of all numbers."""
    doc = inspect.cleandoc(fedmia.table.__doc__ or "")
    first, _, rest = doc.partition("\n\n")
    cells = [
        (f"`{name}`", f"`{TYPES[kind]}`", escape(text))
        for name, (kind, text) in fedmia.table.COLUMNS.items()
    ]
    key = ", ".join(f"`{name}`" for name in fedmia.table.KEY)
    return (
        f"# The table of all numbers\n\n{escape(first)}\n\n`{manifest.TABLE}` and "
        f"`{manifest.TABLE_TEXT}` in a run's folder hold it; `Run.table` and `StudyResult.table` "
        f"give it as a data frame.\n\n{rest}\n\n## Types\n\n"
        f"{table(('Column', 'Type', 'Meaning'), cells)}\n"
        "[Every number by its `subject` and `metric`](report_json.md#metrics-by-subject). "
        f"No two rows agree in all of {key}.\n"
    )


def recording_page() -> str:
    """The page of the format of a recording."""
    _, files, rules, *who = (fedmia.recording.format.__doc__ or "").strip().split("\n\n")
    lines = [
        "# What a recording contains", "",
        "A recording holds what a federation trained, round by round. `fedmia.flower.record` "
        "writes it ([any Flower app](../howto/own_flower_app.md)). Weights are safetensors files.",
        "", f"```text\n{inspect.cleandoc(files)}\n```", "", escape(rules), "",
        "A line without its line end was being written when the process died and does not count. "
        f"This is format {FORMAT}; no other is read.", "", escape("\n\n".join(who)),
    ]  # fmt: skip
    for name, record in ((HEADER, Header), (f"A line of {ROUNDS}", RecordedRound)):
        hints = get_type_hints(record)
        text = entries(sections(inspect.getdoc(record) or "")["Attributes"])
        cells = [(f"`{f}`", type_cell(hint), escape(text[f])) for f, hint in hints.items()]
        lines += ["", f"## {name}", "", table(("Field", "Type", "Meaning"), cells)]
    schema = json.dumps(json_schema(), indent=1)
    lines += ["Keys of an object by client are numbers in quotes. A field that is empty is left "
              "out, unless it says that a file is no longer kept.", "", "## JSON Schema", "",
              f"Of `{HEADER}`; `$defs/round` is that of a line of `{ROUNDS}`, `$defs/cast` and "
              f"`$defs/attacker` those of the values beside `{CAST}` and `{ATTACKER}`.", "",
              f"```json\n{schema}\n```"]  # fmt: skip
    return "\n".join(lines)


def folder_page() -> str:
    """The page of a run's folder and of the exit codes."""
    from fedmia.cli import command

    source = inspect.getsource(manifest)
    files = re.findall(r'^([A-Z_]+) = "([^"]+)"(?:  # (.*))?$', source, re.MULTILINE)
    about = {
        "CONFIG": "complete settings; where and with what the run took place; `--config` repeats"
        " the run",
        "REPORT": "[all results](report_json.md)",
        "PAGE": "the same for a reader; works offline",
    }
    cells = []
    for constant, name, remark in files:
        text = about.get(constant) or escape(remark)
        place = f"checkpoint/{name}" if constant == "CHECKPOINT_INDEX" else name
        cells.append((f"`{place}`", text))
    codes = [
        ("0", "The command did its work, whatever the verdict."),
        (str(command.FAILED), "The run or the audit failed; the last line says why."),
        (str(command.SHUT), "The report fails a condition of `--fail-on`."),
        (str(command.BAD_INPUT), "Bad input: an option, a file, or settings that do not fit."),
        (
            str(command.DISK_FAILED),
            "A file could not be written or read: a disk that is full, read-only or gone.",
        ),
        (str(command.INTERRUPTED), "Interrupted by Ctrl-C, SIGTERM or SIGUSR1."),
    ]
    return (
        "# Files of a run, and exit codes\n\n## Files of a run's folder\n\n"
        f"{table(('File', 'What it holds'), cells)}\n"
        f"The folder's format is version {manifest.FORMAT}; no other is read.\n\n## Exit codes\n\n"
        f"{table(('Code', 'Meaning'), codes)}\n"
        "A verdict is no exit code, unless [`--fail-on`](../howto/ci_gate.md) makes it one.\n"
    )
