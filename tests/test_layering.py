"""Imports go one way: an audit needs only torch, and an attack never sees the split."""

from __future__ import annotations

import ast
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.auditing.conftest import RUN
from tests.bank import Bank

ROOT = Path(__file__).resolve().parents[1]
# A module may import from its own line and from those above it. Every module of ours has a place;
# the longest name that fits says which.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "fedmia",
        "fedmia.seeding",
        "fedmia.settings",
        "fedmia.untrusted",
        "fedmia.records",
        "fedmia.statistics",
        "fedmia.table",
    ),
    ("fedmia.runtime", "fedmia.lowerbounds", "fedmia.flower_internals"),
    ("fedmia.data", "fedmia.nets"),
    ("fedmia.partitions", "fedmia.probes", "fedmia.ssl"),
    ("fedmia.storage", "fedmia.threat"),
    ("fedmia.recording",),
    ("fedmia.attacks", "fedmia.encoders", "fedmia.report", "fedmia.shadows"),
    ("fedmia.rounds",),
    ("fedmia.defenses", "fedmia.observers"),
    ("fedmia.settings.commands",),
    ("clients", "strategies"),
    ("fedmia.cli",),
    ("fedmia.federation",),
    ("fedmia.evaluation",),
    ("fedmia.runs", "fedmia.pilot", "fedmia.pilot_memory"),
    ("fedmia.testing", "fedmia.flower"),
    ("fedmia.study",),
    ("fedmia.simulate", "fedmia.audit", "fedmia.diff"),
    ("fedmia.door",),
    ("fedmia.api",),
    ("fedmia.bench",),
    ("research.papers",),
)
OURS = ("fedmia", "clients", "strategies", "research.papers")
PURE = (
    "fedmia.data", "fedmia.nets", "fedmia.partitions", "fedmia.ssl", "fedmia.attacks",
    "fedmia.probes", "fedmia.encoders", "fedmia.report", "fedmia.threat", "fedmia.records",
    "fedmia.storage.archive", "fedmia.storage.manifest", "fedmia.storage.outfolder",
    "fedmia.storage.runfolder",
    "fedmia.storage.snapshot", "fedmia.recording", "fedmia.seeding", "fedmia.untrusted",
    "fedmia.cli",
    "fedmia.settings",
    "fedmia.shadows", "fedmia.audit", "fedmia.runtime",
    "fedmia.evaluation.steps", "fedmia.evaluation.audits", "fedmia.evaluation.encoder",
    "fedmia.evaluation.suite", "fedmia.evaluation.score", "fedmia.evaluation.active",
    "fedmia.rounds",
    "fedmia.observers", "research.papers.heads", "fedmia.lowerbounds", "fedmia.statistics",
    "fedmia.table", "fedmia.study",
)  # fmt: skip
REPORTING = ("fedmia.report.build", "fedmia.report.figures.draw", "fedmia.report.publish",
             "fedmia.report.terminal")  # fmt: skip
# What makes rows and what judges them.
WORDLESS = (
    "checks", "clients", "codes", "cohorts", "datasets", "defended", "health", "judgement",
    "lowerbounds", "metrics", "per_client", "reach", "regime", "selection",
    "subjects", "void",
)  # fmt: skip
ADAPTERS = tuple(f"fedmia.evaluation.{name}" for name in ("run", "encoder"))
SCORING = tuple(f"fedmia.evaluation.{name}" for name in ("suite", "budgets", "score", "active"))
ROLES = ("fedmia.partitions.split", "fedmia.data.cast")  # who is a member
FEDERATED = ("flwr", "ray", "opacus", "clients", "strategies")
# What Flower documents; of all else any version may be another.
FLOWER = ("flwr.app", "flwr.clientapp.ClientApp", "flwr.clientapp.mod", "flwr.serverapp",
          "flwr.simulation")  # fmt: skip


def modules(*packages: str) -> Iterator[tuple[str, Path]]:
    """Name and file of every module of `packages` (a package or a single module)."""
    for package in packages:
        path = ROOT.joinpath(*package.split("."))
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        for file in files:
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), file


def at_load(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when a module is loaded: no function's, none for the type checker."""
    yield node
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        inside: list[ast.AST] = list(node.orelse)
    else:
        inside = list(ast.iter_child_nodes(node))
    for child in inside:
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from at_load(child)


def imported(node: ast.AST) -> list[str]:
    """The full names that a statement or a call imports; none where it imports nothing."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        return [str(node.args[0].value)] if called == "import_module" else []
    return []


@functools.cache
def imports(source: str, walk: Callable[[ast.AST], Iterable[ast.AST]] = ast.walk) -> frozenset[str]:
    """Dotted names that a module imports anywhere in it, `importlib.import_module` of constants
    and imports for the type checker included; `from a import b` gives `a` and `a.b`."""
    results: set[str] = set()
    for node in walk(ast.parse(source)):
        results |= {*imported(node)}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            results.add(f"{node.module}")
    return frozenset(results)


def loaded(*names: str) -> set[str]:
    """Every name, ours or not, that importing `names` imports, as far as our own modules tell."""
    results: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in results:
            continue
        results.add(name)
        waiting += [name.rpartition(".")[0]] if "." in name else []  # a package, before its module
        path = ROOT.joinpath(*name.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.exists():
                waiting += imports(file.read_text(), at_load)
    return results


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(f"{p}.") for p in packages)


def test_imports__sees_every_form() -> None:
    source = (
        "import a.b\nfrom c import d\ndef f():\n    from e.f import g as h\n"
        "import importlib\nimportlib.import_module('i.j')\n"
        "if TYPE_CHECKING:\n    import k\n"
    )
    found = imports(source)
    assert imports(source, at_load) == {"a.b", "c", "c.d", "importlib", "i.j"}
    assert found == {"a.b", "c", "c.d", "e.f", "e.f.g", "importlib", "i.j", "k"}
    assert within("flwr.app", FEDERATED) and not within("flwrx", FEDERATED)


@pytest.mark.parametrize("package", PURE)
def test_pure_packages__know_no_federation(package: str) -> None:
    listed = list(modules(package))
    assert listed, f"{package} has no modules"
    for name, file in listed:
        wrong = sorted(i for i in imports(file.read_text()) if within(i, FEDERATED))
        assert not wrong, f"{name} imports {wrong}"


def test_flower__is_private_in_one_file() -> None:
    """In what is shipped, in measurements and in the app to copy; imports in functions too."""
    files = [file for _, file in modules(*OURS, "research.measurements")]
    files += sorted((ROOT / "docs").rglob("*.py"))
    private = {
        file.relative_to(ROOT).as_posix()
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in imported(node)
        if within(name, ("flwr",)) and name != "flwr" and not within(name, FLOWER)
    }
    assert private == {"fedmia/flower_internals.py"}


def place(module: str) -> int | None:
    """The line of LAYERS that a module stands on; None where no name fits."""
    fitting = [
        (len(name), i)
        for i, names in enumerate(LAYERS)
        for name in names
        if module == name or (module.startswith(f"{name}.") and name != "fedmia")
    ]
    return max(fitting)[1] if fitting else None


def graph() -> dict[str, set[str]]:
    """Each module of ours with those of ours that it imports, anywhere in it."""
    every = dict(modules(*OURS))
    # What `fedmia` exports is imported when a user names it; its types alone stand in the file.
    walks = {"fedmia": at_load}
    return {
        n: {*(imports(f.read_text(), walks.get(n, ast.walk)) & every.keys())} - {n}
        for n, f in every.items()
    }


def circle(edges: dict[str, set[str]]) -> list[str]:
    """Names along one circle of imports, or nothing."""
    done: set[str] = set()

    def follow(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :] + [name]
        if name in done:
            return []
        for other in sorted(edges[name]):
            if found := follow(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in edges if (found := follow(name, []))), [])


def test_layers__hold_every_module_and_import_downwards_only() -> None:
    edges = graph()
    lost = [name for name in edges if place(name) is None]
    assert not lost, f"no line of LAYERS holds {lost}"
    upwards = [f"{n} imports {o}" for n in edges for o in edges[n] if place(o) > place(n)]  # type: ignore[operator]
    assert not upwards, "; ".join(upwards)
    assert place("fedmia.nonesuch") is None
    assert (
        place("fedmia.settings")
        < place("fedmia.ssl.moco")
        < place("fedmia.settings.commands.audit")
    )  # type: ignore[operator]


def test_imports__run_in_no_circle() -> None:
    """Not those for the type checker, nor those inside functions."""
    assert not circle(graph())
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c", "b"]


# What scoring may reach of a federation: settings, images and models, and who took part when.
OF_FEDERATIONS = ("clients", "strategies", "fedmia.federation", "fedmia.flower")
READ_OF_RUNS = {
    "clients.client_setup", "clients.method_cache", "strategies.cohort",
    "strategies.failure_policy",
    *(f"fedmia.federation.{n}" for n in ("attacker", "plan", "result", "schedule", "utility")),
}  # fmt: skip


def reached(edges: dict[str, set[str]], *names: str) -> set[str]:
    """All that modules import, by way of others too."""
    results, waiting = set[str](), [*names]
    while waiting:
        new = edges.get(waiting.pop(), set()) - results
        results |= new
        waiting += new
    return results


def test_training_writes__scoring_reads() -> None:
    """Nothing that scores imports what plays a round or writes a recording, at load or in a
    function; the adapter of a run alone knows of federations. `--plan` plays its rounds outside."""
    edges, writer = graph(), "fedmia.recording.writer"
    scoring = [name for name, _ in modules("fedmia.evaluation")]
    assert {n for n in reached(edges, *scoring) if within(n, OF_FEDERATIONS)} == READ_OF_RUNS
    of_run = "fedmia.evaluation.run"
    assert not [n for n in scoring if writer in edges[n]]
    rest = reached(edges, *(n for n in scoring if n != of_run))
    assert not [n for n in rest if n == of_run or within(n, OF_FEDERATIONS)]
    assert {of_run, "fedmia.federation.train"} <= edges["fedmia.pilot"]
    assert reached({"a": {"b"}, "b": {"c"}, "d": {"a"}}, "a") == {"b", "c"}


READ = ("CONFIG", "REPORT", "SCORES", "CURVES", "TABLE", "RECORDING")  # of a run's folder
# Who names them beside the reader: the writer; folders that are no run's; who damages runs,
# measures the lengths of their files, or brings them over to another format.
NAMING = (
    "fedmia/storage/", "fedmia/report/publish.py", "fedmia/observers/mlflow.py",
    "research/papers/cells.py", "research/measurements/_stranger_folders.py",
    "research/measurements/_process_faults.py", "research/measurements/strangers.py",
    "research/measurements/growth.py",
)  # fmt: skip


MANIFEST = {
    node.targets[0].id: node.value.value
    for node in ast.parse((ROOT / "fedmia/storage/manifest.py").read_text()).body
    if isinstance(node, ast.Assign)
    and isinstance(node.targets[0], ast.Name)
    and isinstance(node.value, ast.Constant)
}


def names_of_files(source: str) -> set[str]:
    """The files of a run's folder that a module names, by a constant or as a text of its own."""
    constants = {name: MANIFEST[name] for name in READ}
    texts = {*constants.values()} - {MANIFEST["RECORDING"]}  # a word like any other
    named = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in texts:
            named.add(str(node.value))
        named |= {
            constants[name.rpartition(".")[2]]
            for name in imported(node)
            if name.startswith("fedmia.storage.manifest.") and name.rpartition(".")[2] in constants
        }
    return named


def test_files_of_a_run__are_named_by_its_writer_and_its_one_reader() -> None:
    files = [file for _, file in modules(*OURS, "research.measurements", "tools")]
    named = {
        file.relative_to(ROOT).as_posix(): names_of_files(file.read_text(encoding="utf-8"))
        for file in files
    }
    assert not {f: names for f, names in named.items() if names and not f.startswith(NAMING)}
    assert all(any(named[f] for f in named if f.startswith(name)) for name in NAMING)
    source = "from fedmia.storage.manifest import REPORT, PAGE\n(x / 'scores.csv', 'recording')"
    assert names_of_files(source) == {"report.json", "scores.csv"}


# Calls that open what a stranger may have brought, by the end of their names.
OPENING = (
    "json.load", "json.loads", "np.load", "torch.load", "export.load", "onnx.load", "yaml.load",
    "pickle.load", "pickle.loads", "cloudpickle.loads", "csv.reader", "csv.DictReader",
    "safe_open", "load_file", "ZipFile", "tarfile.open", "Image.open", "pd.read_csv",
    "pd.read_parquet", "ParquetFile", "pq.read_table", "pq.read_metadata", "InferenceSession",
    "read_text", "dcmread",
)  # fmt: skip
# Who calls one of them outside of fedmia.untrusted, and on what.
OPENED_ELSEWHERE = {
    "fedmia/settings/yamlfile.py": "settings, within bounds of its own",
    "fedmia/settings/flags.py": "an index that fedmia brings",
    "fedmia/settings/presets.py": "presets that fedmia brings",
    "fedmia/settings/session.py": "classes of the user's own session",
    "fedmia/bench/scoring.py": "the source of an attack, which is run anyway",
    "fedmia/encoders/onnx.py": "a model, by ONNX Runtime, which bounds it",
    "fedmia/flower/node.py": "settings that the node keeps, parsed in fedmia.untrusted",
    "fedmia/storage/runfolder.py": "scores.csv, which pandas reads as text",
    "fedmia/runtime/environment.py": "the kernel's list of processors",
    "fedmia/runtime/memory.py": "what the kernel says of memory",
    "fedmia/study/folder.py": "settings of a study's own runs",
    "fedmia/study/scheduler.py": "logs of a study's own processes",
    "fedmia/federation/cluster.py": "what this process handed to Ray",
    "fedmia/observers/mlflow.py": "figures of the report",
    "fedmia/observers/tensorboard.py": "figures of the report",
    "clients/client_setup.py": "arrays of this process",
    "research/papers/drawing.py": "figures of papers",
    "research/papers/run.py": "tables of papers",
}


def opens(source: str) -> set[str]:
    """The calls of OPENING in a module, but for copies in memory (`json.loads(json.dumps(x))`)."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    read = [c for c in calls if not (c.args and ".dumps(" in ast.unparse(c.args[0]))]
    names = [f".{ast.unparse(call.func)}" for call in read]
    return {name[1:] for name in names if name.endswith(tuple(f".{end}" for end in OPENING))}


def test_files_of_strangers__are_opened_by_one_package() -> None:
    files = {file.relative_to(ROOT).as_posix(): file.read_text() for _, file in modules(*OURS)}
    opening = {name for name, source in files.items() if opens(source)}
    inside = {name for name in opening if name.startswith("fedmia/untrusted/")}
    assert opening - inside == {*OPENED_ELSEWHERE} and len(inside) >= 6
    assert opens("np.load(x)\ny.read_text()\njson.loads(json.dumps(z))") == {
        "np.load", "y.read_text",
    }  # fmt: skip


def private_imports(file: Path) -> list[str]:
    """Private names of ours that a test imports, but for private modules of the package that its
    folder tests."""
    folder = file.relative_to(ROOT / "tests").parts[0]

    def wrong(name: str) -> bool:
        parts = name.split(".")
        private = [at for at, p in enumerate(parts) if p[0] == "_" and not p.endswith("__")]
        modules = [ROOT.joinpath(*parts[: at + 1]).with_suffix(".py") for at in private]
        own = (folder in parts[:at] and m.is_file() for at, m in zip(private, modules, strict=True))
        return not all(own)

    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names = [f"{node.module}.{alias.name}" for node in froms for alias in node.names]
    return [f"{file.name}: {name}" for name in names if within(name, OURS) and wrong(name)]


def test_tests__import_no_private_names() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert not [name for file in files for name in private_imports(file)]


def test_root__holds_commands_and_what_all_share() -> None:
    root = [p for p in (ROOT / "fedmia").glob("*.py")]
    assert len(root) <= 13


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("fedmia.attacks", (*ROLES, "fedmia.report", "fedmia.defenses",
                            "fedmia.settings.registry", "fedmia.probes")),
        ("fedmia.ssl", (*ROLES, "fedmia.partitions", "fedmia.probes")),
        ("fedmia.threat", (*ROLES, "fedmia.report")),
        ("fedmia.storage.snapshot", (*ROLES, "fedmia.report")),
        ("fedmia.shadows", (*ROLES, "fedmia.attacks", "fedmia.defenses",
                            "fedmia.report", "fedmia.probes")),
        ("fedmia.nets", ("fedmia.data", "fedmia.ssl")),
        ("fedmia.report", ("fedmia.attacks", "fedmia.defenses", "fedmia.evaluation")),
        *((f"fedmia.report.{name}", ("fedmia.report.words",)) for name in WORDLESS),
        ("fedmia.report.words", tuple(f"fedmia.report.{name}" for name in (
            "build", "conditions", "gate", "metrics", "page", "publish", "tables", "terminal"))),
        ("fedmia.records", ("fedmia",)),
        *((f"fedmia.evaluation.{name}", ("fedmia.report",))
          for name in ("steps", "suite", "score", "active", "run", "encoder")),
        ("fedmia.evaluation.steps", (*ROLES, "fedmia.defenses",
                                     *SCORING, "fedmia.evaluation.audits", *ADAPTERS)),
        *((name, ("fedmia.evaluation.audits", *ADAPTERS)) for name in SCORING),
        ("fedmia.evaluation.audits", ADAPTERS),
        ("fedmia.evaluation", ("fedmia.federation.train", "fedmia.federation.rounds")),
        *((f"fedmia.evaluation.{name}", ("fedmia.partitions.split", "fedmia.federation.rounds"))
          for name in ("audits", "encoder")),
        ("fedmia.defenses", ("fedmia.attacks", *ROLES, "clients", "strategies")),
        ("clients", ("strategies", *ROLES, "fedmia.report", "fedmia.probes")),
        ("strategies", ("clients", "fedmia.attacks", *ROLES, "fedmia.report")),
    ],
)  # fmt: skip
def test_neighbours__are_left_alone(package: str, forbidden: tuple[str, ...]) -> None:
    lost = [name for name in forbidden if not all(file.is_file() for _, file in modules(name))]
    assert not lost, f"no such module any more: {lost}"
    for name, file in modules(package):
        own = {name, package, *(n for n, _ in modules(package))}  # a package may use itself
        others = {i for i in imports(file.read_text()) if i.rpartition(".")[0] not in own} - own
        wrong = sorted(i for i in others if within(i, forbidden))
        assert not wrong, f"{name} imports {wrong}"


@pytest.fixture(scope="module")
def bare() -> subprocess.CompletedProcess[str]:
    """An interpreter in which no federation is installed and every pure module was imported; it
    prints what a report has loaded before its first figure, and then what all have."""
    names = [name for name, _ in modules(*PURE)]
    program = (
        "import sys, importlib\n"
        f"for name in {FEDERATED[:3]!r}: sys.modules[name] = None\n"
        f"for name in {REPORTING!r}: importlib.import_module(name)\n"
        "print(*sys.modules)\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(*sys.modules)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def test_pure_packages__load_no_federation_through_others() -> None:
    names = loaded(*(name for name, _ in modules(*PURE)))
    assert not sorted(n for n in names if within(n, FEDERATED))
    assert {"torch", "fedmia.threat.client"} <= names
    assert any(within(n, ("flwr",)) for n in loaded("fedmia.simulate"))


def test_scoring__loads_no_federation() -> None:
    names = loaded(*(name for name, _ in modules("fedmia.evaluation")))
    assert not sorted(n for n in names if within(n, FEDERATED[:3]))


def test_doors_of_audits__load_no_federation() -> None:
    """`fedmia`, `fedmia audit`, `fedmia bench`, and what `import fedmia` gives."""
    doors = ("fedmia.api", "fedmia.cli.main", "fedmia.door.auditing", "fedmia.runs", "fedmia.audit")
    own = "fedmia.federation.plan", "fedmia.federation.schedule", "clients.app"  # a run's images
    names = loaded(*doors, *own, *(name for name, _ in modules("fedmia.bench")))
    assert not sorted(n for n in names if within(n, FEDERATED[:3]))


AUDITS = """
import contextlib, io, runpy, sys
import numpy as np, torch
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("flwr", "ray", "opacus"):
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Refuse())
import fedmia
from fedmia.cli.main import main
from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
def command(line, expected=None):
    sys.argv, shown = ["fedmia"], io.StringIO()
    sys.modules.pop(f"fedmia.{line.split()[0]}", None)
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        try:
            code = main(line.split())
        except SystemExit as end:
            code = end.code
    assert (code or None) == expected, (line, shown.getvalue())
    return shown.getvalue()
images = Synthetic(classes=3, images=66, pixels=8, channels=3).load(Request(None, None, None, 0))
for name, rows in (("members", slice(26)), ("others", slice(26, None))):
    np.savez(f"{name}.npz", x=images.images[rows].transpose(0, 2, 3, 1), y=images.labels[rows])
    np.save(f"{name}.npy", np.random.default_rng(rows.start).normal(size=(70, 8)))
net = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3, 2, 1), torch.nn.Flatten(), torch.nn.ReLU())
torch.export.save(torch.export.export(net, (torch.zeros(2, 3, 8, 8),),
    dynamic_shapes=({0: torch.export.Dim("rows")},)), "net.pt2")
sides = "--members npz:members.npz --nonmembers npz:others.npz --quiet"
command(f"audit --encoder net.pt2 {sides} --plan")
command(f"audit --encoder net.pt2 {sides} --out A --junit j.xml --fail-on auc>0.99")
command("audit --member-embeddings members.npy --nonmember-embeddings others.npy --out V --quiet")
command("bench similarity --targets moco-digits-weak --quiet")
for page in ("--help", "audit --help", "list attack", "bench --help"):
    command(page)
for line in ("simulate --config smoke", "list strategy"):
    assert command(line, 2).startswith("fedmia: error: fedmia"), line
assert len(fedmia.open_run("A").attacks)
command("audit --encoder RUN --attacks similarity --out OF_RUN --quiet")
command("audit --encoder RUN --federation RUN/recording --attacks similarity --quiet")
for name in ("RUN", "OF_RUN"):
    assert len(fedmia.open_run(name).images.ids("scored_members"))
fedmia.audit_encoder(net, images.images[:26], images.images[26:], attacks="similarity", quiet=True)
fedmia.audit_embeddings(np.load("members.npy"), np.load("others.npy"), quiet=True)
"""


@pytest.mark.slow(seconds=20)
def test_audits__run_where_no_federation_is_installed(bank: Bank, tmp_path: Path) -> None:
    """Those of a run's own images, too, whatever its strategy and its defence."""
    shutil.copytree(bank.run(f"{RUN} --strategy fedavgm --defense dpsgd"), tmp_path / "RUN")
    done = subprocess.run(
        [sys.executable, "-c", AUDITS], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_pure_packages__import_where_no_federation_is_installed(
    bare: subprocess.CompletedProcess[str],
) -> None:
    assert bare.returncode == 0, bare.stderr[-2000:]
    assert not {"clients", "strategies"} & set(bare.stdout.splitlines()[-1].split())


def test_report__loads_matplotlib_for_a_figure_only() -> None:
    assert not {n for n in loaded(*REPORTING) if within(n, ("matplotlib",))}


@pytest.mark.slow
def test_report__loads_no_matplotlib_by_way_of_others(
    bare: subprocess.CompletedProcess[str],
) -> None:
    reporting = bare.stdout.splitlines()[0].split()
    assert "fedmia.report.terminal" in reporting and "matplotlib" not in reporting
