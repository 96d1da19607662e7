"""The generated reference names every option and plugin that the code has."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import re

import pytest

from fedmia.cli.commands import COMMANDS
from fedmia.records.fields import fields_of
from fedmia.report.codes import CODES
from fedmia.settings import registry
from tests.made_up_runs import columns, table_rows
from tests.options import option_fields
from tests.pages.reading import ROOT, script, text_of

EXT = "docs/_ext"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Path within the reference -> text of every generated page."""
    folder = tmp_path_factory.mktemp("reference")
    files = script("reference_pages", EXT).write_pages(folder)
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in files}


@pytest.mark.parametrize("name", COMMANDS)
def test_command__page_has_every_option(pages: dict[str, str], name: str) -> None:
    command, page = COMMANDS[name], pages[f"commands/{name}.md"]
    rows = {}
    for line in page.splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        if len(cells) == 5 and (flag := re.match(r" `(--[\w.-]+)`", cells[0])):
            rows[flag[1]] = cells
    own = {f"--{n.replace('_', '-')}" for n in {**command.own, **command.shape.lists}}
    flags = {command.flag_of(path) for path in command.shape.options}
    assert own | flags <= set(rows)
    assert all(cells[1].strip() for cells in rows.values())
    for path, (_, about) in command.shape.options.items():
        name_cell, _, _, default, limits = rows[command.flag_of(path)]
        assert f"`{path}`" in name_cell or f"`--{path}`" in name_cell
        assert ("(default" in about or ", default" in about) == bool(default.strip()), path
        for one in re.findall(r"[<>]=? [-\d.e]+(?=[,)])", about):
            assert one in limits, path


def test_help__is_split_into_meaning_default_and_range() -> None:
    split = script("commands_pages", EXT).split_help
    assert split("clients (default 10, >= 1)") == ("clients", "10", ">= 1")
    assert split("a list (default a, b, > 0, <= 1)") == ("a list", "a, b", "> 0, <= 1")
    assert split("cores (none: all) (default none)") == ("cores (none: all)", "none", "")
    assert split("bound (> 0)") == ("bound", "", "> 0")
    assert split("a folder (new)") == ("a folder (new)", "", "")


@pytest.mark.parametrize("kind", registry.KINDS)
def test_plugin__page_has_every_plugin_and_option(pages: dict[str, str], kind: str) -> None:
    parts = re.split(r"^## (\S+?)(?::PATH)?$", pages[f"plugins/{kind}.md"], flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(sections) == registry.names(kind)
    escape = script("mdtext", EXT).escape
    for name, text in sections.items():
        cls = registry.load(kind, name)
        assert escape(registry.summary(cls)) in text
        assert escape(registry.paper(cls)) in text
        flags = re.findall(r"^\| `--[\w.-]+\.(\w+)` \|", text, re.M)
        assert flags == [field.name for field, _ in option_fields(cls)], name


def test_report__page_has_every_field_and_says_more_than_its_name(pages: dict[str, str]) -> None:
    formats, page = script("formats_pages", EXT), pages["report_json.md"]
    assert "`verdict_code` | `string`" in page and "[`list[AttackRow]`](#attackrow)" in page
    for record in formats.row_types():
        section = page.split(f"\n## {record.__name__}\n")[1].split("\n## ")[0]
        names = re.findall(r"^\| `(\w+)` \|", section, re.M)
        fields = fields_of(record)
        assert names == list(fields)
        assert not [n for n, f in fields.items() if f.help in ("", n, n.replace("_", " "))]


def test_report__names_the_function_that_computes_a_number(pages: dict[str, str]) -> None:
    """A dotted name that leads nowhere would be a dead link."""
    formats = script("formats_pages", EXT)
    paths = {f.by for record in formats.row_types() for f in fields_of(record).values() if f.by}
    assert len(paths) > 10
    for path in paths:
        link = formats.function_link(path)
        assert link in pages["report_json.md"]
        if path.startswith("statistics."):
            assert f".. autofunction:: fedmia.{path}\n" in pages["python/statistics.md"]
        else:
            assert (ROOT / "docs/reference" / link.split("(")[1].rstrip(")")).is_file()


@pytest.mark.parametrize("name", ["active", "server", "audit"])
def test_metrics__list_every_number_of_a_report(pages: dict[str, str], name: str) -> None:
    report = json.loads((ROOT / f"tests/golden/{name}.json").read_text(encoding="utf-8"))
    report |= dict.fromkeys(("timing", "versions", "hardware"), {})  # without a number
    rows = table_rows(report)
    section = pages["report_json.md"].split("## Metrics by subject")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| [^|]+ \| [^|]+ \| `", section, re.M)
    assert len(listed) == section.count("\n| `")
    listed += [(subject.replace("/{name}", ""), metric) for subject, metric in listed]
    known = [re.sub(r"\\{\w+\\}", ".+", re.escape(f"{s} {m}")) for s, m in listed]
    for subject, metric in {(row["subject"], row["metric"]) for row in rows}:
        assert any(re.fullmatch(one, f"{subject} {metric}") for one in known), (subject, metric)


def test_table__page_has_every_column(pages: dict[str, str]) -> None:
    types = pages["table.md"].split("## Types")[1]
    listed = re.findall(r"^\| `(\w+)` \| `(string|integer|number)` \| [^ |]", types, re.M)
    assert [name for name, _ in listed] == columns()


def test_codes__are_those_of_the_code(pages: dict[str, str]) -> None:
    formats = script("formats_pages", EXT)
    listed = re.findall(r"^\| `([a-z-]+)` \| [A-Z]", formats.verdicts(), re.M)
    assert sorted(listed) == sorted(CODES) == sorted(formats.VERDICTS)
    assert listed[0] == "no-verdict" and listed[-1] == "not-established"
    assert all(f"| {code} |" in pages["run_folder.md"] for code in (0, 1, 2, 130))


def test_python__pages_document_what_the_package_exports(pages: dict[str, str]) -> None:
    """An object or a method without a docstring would be missing on its page, in silence."""
    import fedmia

    text = "".join(page for name, page in pages.items() if name.startswith("python/"))
    paths = re.findall(r"^\.\. auto\w+:: ([\w.]+)$", text, re.M)
    exported = [path.removeprefix("fedmia.") for path in paths if path.count(".") == 1]
    assert sorted(exported) == fedmia.__all__
    bases = {f"{module}.{name}" for _, module, name in registry.KINDS.values()}
    public = {f"fedmia.{kind}.{base}" for kind, base in (("attacks", "Attack"), ("ssl", "SSL"))}
    assert bases - {"fedmia.attacks.base.Attack", "fedmia.ssl.base.SSL"} | public < set(paths)
    assert {"fedmia.attacks.ActiveAttack", "fedmia.threat.ServerView"} < set(paths)
    for path in paths:
        module, _, name = path.rpartition(".")
        documented = getattr(importlib.import_module(module), name)
        parts = vars(documented) if inspect.isclass(documented) else {}
        fields = getattr(documented, "__dataclass_fields__", {})  # stand under `Attributes`
        public = [n for n, one in parts.items() if not n.startswith("_") and inspect.isroutine(one)]
        assert inspect.getdoc(documented), path
        missing = [n for n in public if not inspect.getdoc(getattr(documented, n))]
        assert not {*missing} - {*fields}, path


def test_text__that_means_something_to_markdown_is_escaped() -> None:
    markdown = script("mdtext", EXT)
    assert markdown.escape("a_b *c* `d_e` [f]") == r"a\_b \*c\* `d_e` \[f\]"
    assert markdown.cell("a |\n b") == r"a \| b"
    doc = "What.\n\nAttributes:\n    a, b: one\n        more.\n    c: two.\n\nAfter."
    parts = markdown.sections(doc)
    assert parts[""] == "What.\n\nAfter."
    assert markdown.entries(parts["Attributes"]) == {
        "a": "one more.",
        "b": "one more.",
        "c": "two.",
    }


def test_epsilon__table_is_the_bound_that_the_page_states() -> None:
    def bound(epsilon: float, fpr: float) -> float:
        """The highest TPR that any test has against (epsilon, 0)-privacy."""
        return min(math.exp(epsilon) * fpr, 1 - math.exp(-epsilon) * (1 - fpr))

    page = text_of("docs/concepts/reading_numbers.md")
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    assert len(rows) == 6
    for row in rows:
        epsilon, auc, one, tenth = map(float, row)
        grid = [(i + 0.5) / 20_000 for i in range(20_000)]  # the area, by the midpoint rule
        area = sum(bound(epsilon, fpr) for fpr in grid) / len(grid)
        assert auc == pytest.approx(area, abs=6e-4)
        assert area == pytest.approx(math.exp(epsilon) / (1 + math.exp(epsilon)), abs=1e-4)
        assert [one, tenth] == pytest.approx([bound(epsilon, f) for f in (0.01, 0.001)], abs=5.1e-4)
