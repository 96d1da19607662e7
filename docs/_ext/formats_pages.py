"""Reference pages of what fedmia writes: report.json, the table, a run's folder, codes."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import json
import re
import sys
import tokenize
from typing import Any, get_args, get_type_hints, is_typeddict

from mdtext import entries, escape, sections, table

import fedmia.recording.format
import fedmia.table
from fedmia.recording.format import (
    ATTACKER,
    CAST,
    FORMAT,
    HEADER,
    ROUNDS,
    Header,
    RoundRecord,
    json_schema,
)
from fedmia.records import rows
from fedmia.records.fields import Field, fields_of
from fedmia.report import judgement
from fedmia.storage import manifest


@functools.cache
def written_comments(module: str) -> dict[str, dict[str, str]]:
    """Class -> field -> the comment above it or behind it, in a module of records."""
    source = inspect.getsource(sys.modules[module])
    comments = {
        token.start[0]: (token.string.lstrip("# "), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    result: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                above, line = [], item.lineno - 1
                while line in comments and comments[line][1]:
                    above.insert(0, comments[line][0])
                    line -= 1
                behind = comments.get(item.end_lineno or 0, ("", True))
                text = " ".join([*above, *([] if behind[1] else [behind[0]])])
                result.setdefault(node.name, {})[item.target.id] = text
    return result


def row_types() -> list[type]:
    """The records of report.json, `Report` first, in the order in which they are reached."""
    order: list[type] = []
    todo: list[type] = [rows.Report]
    while todo:
        one = todo.pop(0)
        if one not in order:
            order.append(one)
            for field in fields_of(one).values():
                kinds = [field.record] if is_typeddict(field.record) else get_args(field.record)
                todo += [kind for kind in kinds if is_typeddict(kind)]
    return order


def bases(record: Any) -> list[Any]:
    """A record and the records whose fields it takes over."""
    below = [b for b in getattr(record, "__orig_bases__", ()) if is_typeddict(b)]
    return [record, *(one for b in below for one in bases(b))]


JSON_NAMES = {"None": "null", "str": "string", "float": "number", "int": "integer"}


def type_text(hint: Any) -> str:
    """A type as a reader of JSON knows it."""
    text = re.sub(r"\b(?:typing|collections\.abc|fedmia\.records\.\w+)\.", "", str(hint))
    text = re.sub(r"<class '(?:[\w.]+\.)?(\w+)'>", r"\1", text)
    text = re.sub(r"(?:NotRequired|Required)\[(.*)\]$", r"\1", text)
    text = re.sub(r"\bSequence\[", "list[", text)
    text = re.sub(r"\bMapping\[", "dict[", text)
    for ours, theirs in (
        ("None", "null"),
        ("str", "string"),
        ("float", "number"),
        ("int", "integer"),
    ):
        text = re.sub(rf"\b{ours}\b", theirs, text)
    return text


# Fields whose name says what they are to the authors only, in every record that has them.
MEANINGS = {
    "accuracy": "share of right decisions, members and non-members counted alike",
    "auc": "area under the ROC curve: 0.5 is a guess, 1 finds every member",
    "branch": "of the federation: main, zero or placebo",
    "clients": "partition ids of clients",
    "control": "what the attack is compared with",
    "knn": "accuracy of a weighted nearest-neighbour classifier on the encoder's features",
    "layers": "leakage by layer of the encoder",
    "leakage": "leakage of this round's model",
    "linear": "accuracy of a linear classifier on the encoder's features",
    "mean": "subtracted from each channel of an image in [0, 1]",
    "name": "which one it is",
    "precision": "share of members among the images that are called members",
    "recall": "share of the members that are called members",
    "size": "images a set",
    "split": "number of images of each kind",
    "standing": "`guaranteed`, `heuristic` or `empirical`: what the epsilon rests on",
    "std": "by which each channel is divided then",
    "sweep": "what is varied: known or query_budget",
    "value": "the number itself",
}


def meaning(record: Any, name: str, field: Field) -> str:
    """What a field means: its entry in the docstring, its comment, or what it is called."""
    texts = []
    for one in bases(record):
        doc = entries(sections(inspect.getdoc(one) or "").get("Attributes", ""))
        texts += [
            doc.get(name, ""),
            written_comments(one.__module__).get(one.__name__, {}).get(name, ""),
        ]
    text = next(filter(None, texts), "")
    if not text and field.part:
        text = f"of `{field.part}`: {'simultaneous ' * ('simultaneous' in name)}95 % interval"
    if not text and field.record is not None:
        kinds = [field.record] if is_typeddict(field.record) else get_args(field.record)
        text = "see " + ", ".join(f"`{kind.__name__}`" for kind in kinds)
    if not text:
        text = MEANINGS.get(name, "")
    if not text:
        text = (field.label or field.head.replace("-\n", "") or name).replace("_", " ")
    return text


def report_page() -> str:
    """The page of report.json."""
    doc = (rows.__doc__ or "").split("\n\n")
    lines = ["# report.json", "", escape(doc[1]).replace("\n", " "), ""]
    lines += ["`Report` is the whole file. A field in *italics* may be absent.", ""]
    lines += [verdicts(), ""]
    for record in row_types():
        text = sections(inspect.getdoc(record) or "")[""]
        lines += [f"## {record.__name__}", "", escape(text), ""]
        cells = []
        hints = get_type_hints(record)
        for name, field in fields_of(record).items():
            label = f"*`{name}`*" if field.optional else f"`{name}`"
            kind = type_text(hints[name])
            cells.append((label, f"`{kind}`", escape(meaning(record, name, field))))
        lines += [table(("Field", "Type", "Meaning"), cells), ""]
    return "\n".join(lines)


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
    hints = get_type_hints(fedmia.table.Row)
    text = entries(sections(inspect.getdoc(fedmia.table.Row) or "")["Attributes"])
    cells = [
        (f"`{name}`", f"`{type_text(hints[name])}`", escape(text.get(name, name)))
        for name in fedmia.table.COLUMNS
    ]
    key = ", ".join(f"`{name}`" for name in fedmia.table.KEY)
    return (
        f"# The table of all numbers\n\n{escape(first)}\n\n`{manifest.TABLE}` and "
        f"`{manifest.TABLE_TEXT}` in a run's folder hold it; `Run.table` and `StudyResult.table` "
        f"give it as a data frame.\n\n{rest}\n\n## Types\n\n"
        f"{table(('Column', 'Type', 'Meaning'), cells)}\nNo two rows agree in all of {key}.\n"
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
    for name, record in ((HEADER, Header), (f"A line of {ROUNDS}", RoundRecord)):
        hints = get_type_hints(record)
        text = entries(sections(inspect.getdoc(record) or "")["Attributes"])
        cells = [(f"`{f}`", f"`{type_text(hint)}`", escape(text[f])) for f, hint in hints.items()]
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
