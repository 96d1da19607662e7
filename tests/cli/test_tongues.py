"""One wrong option, three ways to give it: one sentence, which names the option by its path."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import fedmia
from fedmia.cli.command import parse
from fedmia.cli.commands import AUDIT, SIMULATE
from fedmia.settings import option
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError
from fedmia.settings.tree import flatten, to_tree
from fedmia.settings.yamlfile import dump
from tests.settings.conftest import refused
from tests.snapshots import Snapshot


def caught(call: Callable[..., object], *arguments: Any, **options: Any) -> InputError:
    with pytest.raises(InputError) as error:
        call(*arguments, **options)
    return error.value


# Command, flags, and the same as a tree of settings.
WRONG: list[tuple[Any, str, dict[str, Any]]] = [
    (SIMULATE, "--clients 0", {"federation": {"clients": 0}}),
    (SIMULATE, "--rounds three", {"federation": {"rounds": "three"}}),
    (SIMULATE, "--train.lr nan", {"train": {"lr": float("nan")}}),
    (SIMULATE, "--mean 128", {"data": {"mean": [128]}}),
    (SIMULATE, "--device tpu", {"device": "tpu"}),
    (SIMULATE, "--attacks similarty", {"attacks": ["similarty"]}),
    (SIMULATE, "--attack.lpla.p 9", {"attack": {"lpla": {"p": 9}}}),
    (SIMULATE, "--attack.partcrop.norm null", {"attack": {"partcrop": {"norm": None}}}),
    (SIMULATE, "--partition.alhpa 1", {"partition": {"alhpa": 1}}),
    (SIMULATE, "--partition iid --partition.alpha 1", {"partition": {"name": "iid", "alpha": 1}}),
    (SIMULATE, "--defended-clients 3", {"defended_clients": [3]}),
    (SIMULATE, "--malicious 11 --attacker active", {"malicious": 11, "attacker": "active"}),
    (AUDIT, "--known 1", {"known": 1}),
    (AUDIT, "--channels rbg", {"channels": "rbg"}),
    (AUDIT, "--skip-unreadable maybe", {"skip_unreadable": "maybe"}),
    (AUDIT, "--sweep 1,0", {"sweep": "1,0"}),
    (AUDIT, "--shadow.epochs 0", {"shadow": {"epochs": 0}}),
    (AUDIT, "--shadow.ssl.rotation 200", {"shadow": {"ssl": {"rotation": 200}}}),
]
SIDES = {"encoder": "x", "members": "digits", "nonmembers": "parquet:b"}


def test_wrong_option__is_one_sentence_however_it_was_given(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    """By flag, in a file and in Python; 2 and 2.0 are one number."""
    file, said = tmp_path / "settings.yaml", list[str]()
    for command, flags, tree in WRONG:
        sides = SIDES if command is AUDIT else {}
        around = [word for name, value in sides.items() for word in (f"--{name}", value)]
        file.write_text(dump({**sides, **tree}))
        errors = [
            caught(parse, command, [*around, *flags.split()]),
            caught(parse, command, ["--config", str(file)]),
            caught(fedmia.audit_encoder, *SIDES.values(), **tree)
            if command is AUDIT
            else caught(fedmia.run_simulation, tree),
        ]
        sentences = {re.sub(r"\b(\d+)\.0\b", r"\1", str(error)) for error in errors}
        assert len({one.removeprefix(f"{file}: ") for one in sentences}) == 1, errors
        said.append(str(errors[0]).partition(" (known")[0])
    snapshot("\n".join(said))


def test_short_name__stands_for_the_path_in_files_and_in_python() -> None:
    short = {"clients": 3, "device": "cpu", "dataset": "synthetic"}
    whole = {"federation": {"clients": 3}, "machine.device": "cpu", "data": {"name": "synthetic"}}
    assert flatten(Experiment, short) == flatten(Experiment, whole)
    with pytest.raises(InputError, match=r"^federation.clients \(--clients\) is given twice"):
        flatten(Experiment, {**short, **whole})


def test_key_without_its_section__names_the_path(snapshot: Snapshot) -> None:
    keys = ("cleints", "momentm", "atacks", "rotation")
    trees = [*({key: 1} for key in keys), {"split": {"score": 9}}]
    snapshot("\n".join(str(caught(fedmia.run_simulation, tree)) for tree in trees))


def test_another_commands_line__stays_as_it_is_in_python() -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
    from tests.auditing.brought import tiny

    run = fedmia.audit_encoder(
        tiny(), images[:25], images[25:], attacks="lpla,ascent,lira", shadows=0, quiet=True
    )
    reasons = run.records.not_run
    assert reasons == {
        "ascent": "takes part in the training: fedmia simulate --attacker active runs it",
        "lira": "needs shadow encoders (shadow.count (--shadows) N, or shadow.encoders "
        "(--shadow-encoders) FOLDER)",
    }


def test_unknown_option_of_an_audit_of_a_module__is_named_with_the_nearest() -> None:
    images, module = np.zeros((4, 3, 8, 8), np.uint8), nn.Identity()
    with pytest.raises(InputError, match="unknown option query_budgt; did you mean 'query_budget'"):
        fedmia.audit_encoder(module, images, images, query_budgt=3)


def test_new_option__is_one_field(tmp_path: Path) -> None:
    """Flag, YAML, help, range check, round trip: all read off the dataclass."""

    @dataclass(frozen=True)
    class More(Audit):
        patience: int = option(3, "how long it waits", ge=1)

    command = replace(AUDIT, root=More)
    settings = parse(command, ["--encoder", "x", "--patience", "4"]).settings
    assert settings.patience == 4
    file = tmp_path / "more.yaml"
    file.write_text(dump(to_tree(settings)))
    assert parse(command, ["--config", str(file)]).settings == settings
    said = str(caught(parse, command, ["--encoder", "x", "--patience=0"]))
    assert said.startswith("patience (--patience): 0, must be >= 1")
    assert "did you mean '--patience'" in str(caught(parse, command, ["--patienc", "3"]))


def test_last_part_of_a_path_and_name_of_a_plugin__find_the_flag() -> None:
    near = {
        "--alpha": "partition.alpha", "--lr": "train.lr", "--scored": "split.scored",
        "--dirichlet": "partition dirichlet", "--dpsgd": "defense dpsgd", "--cleints": "clients",
    }  # fmt: skip
    for flag, meant in near.items():
        assert f"unknown option {flag}; did you mean '--{meant}'?" in refused(f"simulate {flag} 1")
    for name, path in (("alpha", "partition.alpha"), ("lr", "train.lr"), ("cleints", "clients")):
        for given in ({"config": {name: 1}}, {name: 1}):
            said = str(caught(fedmia.run_simulation, **given))
            assert said.startswith(f"unknown option {name}; did you mean '") and path in said
