"""`--schema`: every preset fits it, and what the declarations refuse does not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedmia.settings import registry
from fedmia.settings.yamlfile import load
from tests.cli.test_command import PRESETS
from tests.commands import fedmia
from tests.options import option_fields
from tests.settings.conftest import IMAGES, built, values

jsonschema = pytest.importorskip("jsonschema", reason="nbformat, of the test extra, brings it")
FILES = {
    **{p: "simulate" for p in [*PRESETS.glob("*.yaml"), *PRESETS.glob("papers/*.yaml")]},
    **dict.fromkeys(PRESETS.glob("papers/audits/*.yaml"), "audit"),
    **dict.fromkeys([*PRESETS.glob("sweeps/*.yaml"), *PRESETS.glob("tradeoffs/*.yaml")], "study"),
}


@cache
def schema(command: str) -> dict[str, Any]:
    """What `fedmia COMMAND --schema` prints."""
    content: dict[str, Any] = json.loads(fedmia(f"{command} --schema").out)
    return content


@cache
def validator(command: str) -> Any:
    jsonschema.Draft202012Validator.check_schema(schema(command))
    assert "\u27e8" not in json.dumps(schema(command), ensure_ascii=False)  # an option left open
    return jsonschema.Draft202012Validator(schema(command))


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_presets__fit_and_are_no_defaults(file: Path) -> None:
    tree = load(file)
    validator(FILES[file]).validate(tree)
    name = file.relative_to(PRESETS).with_suffix("").as_posix()
    if FILES[file] == "study":
        assert len(built(f"study {name}").cells) > (name != "sweeps/ascent-resnet18")
    elif FILES[file] == "simulate":
        plain, own = values(built("simulate")), values(built(f"simulate --config {name}"))
        assert plain != own and {*tree} - {"base"} <= {path.partition(".")[0] for path in own}
    else:
        assert built(f"audit --config {name} --encoder x {IMAGES}")


@pytest.mark.parametrize(
    ("command", "tree"),
    [
        ("simulate", {"seed": -1}),
        ("simulate", {"sead": 1}),
        ("simulate", {"federation": {"participation": 1.5}}),
        ("simulate", {"federation": {"placebo": "maybe"}}),
        ("simulate", {"federation": {"client_timeout": "long"}}),
        ("simulate", {"attacker": "nobody"}),
        ("simulate", {"data": {"mean": [2]}}),
        ("simulate", {"data": {"name": "digits", "image_column": "x"}}),
        ("simulate", {"partition": "dirichlt"}),
        ("simulate", {"partition": {"name": "dirichlet", "alpa": 1}}),
        ("simulate", {"partition": {"name": "iid", "alpha": 1}}),
        ("simulate", {"attack": {"similarity": {"views": 0}}}),
        ("simulate", {"defense": [{"name": "gaussian", "scale": -1}]}),
        ("simulate", {"defense": {"name": "gaussian", "gaussian": {"sigma": 1}}}),
        ("audit", {"shadow": {"epohcs": 3}}),
        ("audit", {"members": {"name": "digits", "no_such": 1}}),
        ("audit", {"precision": "float64"}),
        ("study", {"over": {"partition.alpha": 3}}),
        ("study", {"strengths": {"gaussian": 1}}),
    ],
    ids=str,
)
def test_unknown_keys_and_values_out_of_range__are_refused(command: str, tree: Any) -> None:
    assert not validator(command).is_valid(tree)


@pytest.mark.parametrize(
    ("command", "tree"),
    [
        ("simulate", {"federation": {"client_timeout": "none", "placebo": "auto"}}),
        ("simulate", {"data": {"name": "parquet:x", "image_column": "x"}, "seed": 3}),
        ("simulate", {"partition": "file:clients.json", "defended_clients": "0-3"}),
        ("simulate", {"partition": {"name": "dirichlet", "alpha": 1}, "_run": {"commit": None}}),
        ("simulate", {"partition": {"alpha": 1}, "pretrain": "pooled", "base": "smoke"}),
        ("simulate", {"defense": {"name": "dpsgd,gaussian", "gaussian": {"scale": 2}}}),
        ("simulate", {"ssl": "package.module:Class", "attacker": "package.module:Role"}),
        ("audit", {"shadow": {"model": "vit"}, "members": {"name": "npz:x", "column": "x"}}),
        ("study", {"over": [{"strategy": ["fedavg", "fedprox"]}], "seeds": 2}),
        ("study", {"defenses": ["gaussian"], "strengths": {"gaussian": [1, 2]}}),
    ],
    ids=str,
)
def test_what_files_may_say__fits(command: str, tree: Any) -> None:
    validator(command).validate(tree)


def test_every_plugin__appears_with_its_options() -> None:
    for kind in ("dataset", "partition", "model", "ssl", "strategy", "attack", "defense"):
        for name in registry.names(kind):
            options = {one.name for one, _ in option_fields(registry.load(kind, name))}
            assert set(schema("simulate")["$defs"][f"{kind}.{name}"]["properties"]) == options
