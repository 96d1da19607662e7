"""Reference pages of the Python API: what `fedmia` exports, and the parts that one builds on."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from mdtext import escape

import fedmia
import fedmia.ssl
import fedmia.statistics
import fedmia.testing
import fedmia.threat
from fedmia.settings import registry

# What a user types, in the order in which one meets it.
EXPORTS = (
    "run_simulation", "run_study", "audit_encoder", "audit_embeddings", "audit_federation",
    "rank_suspects", "open_run", "open_study", "view", "Run", "StudyResult", "InputError",
)  # fmt: skip
BASES = ("Attack", "ActiveAttack", "DatasetAttack", "Known", "NotFitted")
# Of the other kinds of plugins, and what a plugin builds them with.
BESIDE = {
    "strategy": ("fedmia.storage.snapshot.Update", "fedmia.storage.snapshot.LocalTraining"),
    "defense": ("fedmia.defenses.base.Preparation",),
    "view": ("fedmia.study.view.Section",)
    + tuple(f"fedmia.study.columns.{n}" for n in ("columns_of", "inside")),
    "encoder": ("fedmia.encoders.factory.wrap",)
    + tuple(f"fedmia.encoders.base.{n}" for n in ("load", "EncoderFacts", "LoadedEncoder")),
}
ABOUT = (
    "`import fedmia` loads nothing heavy; each name is imported when it is used. "
    "[The table](../table.md) says what its columns mean."
)
STATISTICS = "Arrays in, numbers out. They need numpy and scipy alone. A higher score says member."


def directive(path: str) -> str:
    """What asks autodoc for an object."""
    module, _, name = path.rpartition(".")
    subject = getattr(importlib.import_module(module), name)
    if inspect.isclass(subject):
        if issubclass(subject, BaseException):
            return f".. autoexception:: {path}\n   :no-members:\n"
        return f".. autoclass:: {path}\n"
    return f".. autofunction:: {path}\n"


def block(paths: list[str]) -> str:
    """Directives for the objects of some paths."""
    return "```{eval-rst}\n" + "\n".join(map(directive, paths)) + "```\n"


def statistics_paths() -> list[tuple[str, list[str]]]:
    """(module, its public functions and classes) of the statistics."""
    parts = []
    for subject in pkgutil.iter_modules(fedmia.statistics.__path__):
        module = importlib.import_module(f"fedmia.statistics.{subject.name}")
        names = [
            name
            for name, one in vars(module).items()
            if not name.startswith("_")
            and (inspect.isfunction(one) or inspect.isclass(one))
            and one.__module__ == module.__name__
        ]
        if names and not subject.name.startswith("_"):
            parts.append((module.__name__, [f"{module.__name__}.{name}" for name in names]))
    return parts


def python_pages() -> dict[str, str]:
    """Name of each page of the Python API -> its text."""
    threat = [f"fedmia.threat.{n}" for n in fedmia.threat.__all__ if n[1].islower()]
    threat = [p for p in threat if callable(getattr(fedmia.threat, p.rpartition(".")[2]))]
    kinds = {kind: paths for kind, paths in registry.KINDS.items() if kind not in ("attack", "ssl")}
    bases = [p for k, (_, m, n) in kinds.items() for p in (f"{m}.{n}", *BESIDE.get(k, ()))]
    methods = [f"fedmia.ssl.{n}" for n in fedmia.ssl.__all__]
    about_methods = escape(" ".join((fedmia.ssl.__doc__ or "").split("\n\n")[1].split()))
    checks = [f"fedmia.testing.{n}" for n in fedmia.testing.__all__]
    views = escape(" ".join((fedmia.threat.__doc__ or "").split("\n\n")[1].split()))
    about_checks = escape(" ".join((fedmia.testing.__doc__ or "").split()))
    parts = {
        "fedmia": ("What you type", ABOUT, [f"fedmia.{name}" for name in EXPORTS]),
        "attacks": (
            "Base classes of attacks",
            "An attack of your own derives from one of these; "
            "[all built-in attacks](../plugins/attack.md).",
            [f"fedmia.attacks.{n}" for n in BASES],
        ),
        "ssl": ("Base classes of self-supervised methods", about_methods, methods),
        "plugins": (
            "Base classes of all other plugins",
            "[Pages with a whole file each](../../howto/index.md) show how to use them.",
            bases,
        ),
        "threat": ("Views: what an attacker may see", views, threat),
        "testing": ("Checks of your own plugins", about_checks, checks),
    }
    pages = {
        name: f"# {title}\n\n{about}\n\n{block(paths)}"
        for name, (title, about, paths) in parts.items()
    }
    lines = ["# Statistics", "", STATISTICS]
    for module, paths in statistics_paths():
        doc = (importlib.import_module(module).__doc__ or "").split("\n\n")[0]
        lines += ["", f"## {module}", "", escape(" ".join(doc.split())), "", block(paths)]
    pages["statistics"] = "\n".join(lines)
    toctree = "\n".join(pages)
    pages["index"] = f"# Python\n\n```{{toctree}}\n:maxdepth: 1\n\n{toctree}\n```\n"
    return pages
