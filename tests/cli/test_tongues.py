"""One wrong option, three ways to give it: each is told of it in the words that it used."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.cli import help
from fedmia.cli.command import parse
from fedmia.cli.commands import AUDIT, SIMULATE
from fedmia.cli.flags import Command
from fedmia.config.audit import Audit
from fedmia.config.experiment import Experiment
from fedmia.config.tree import from_tree, to_tree
from fedmia.library import audit
from fedmia.options.errors import InputError, format_error, map_options, opt
from fedmia.options.option import option
from fedmia.options.yamlfile import dump


def refused(command: Command, *flags: str) -> str:
    with pytest.raises(InputError) as caught:
        parse(command, flags)
    return str(caught.value)


@pytest.mark.parametrize(
    ("command", "path", "flags", "tree", "told"),
    [
        (
            AUDIT, "known", ("--known", "1"), {"known": 1},
            ("--known must be >= 2, got 1", "known in {file} must be", "known must be >= 2"),
        ),
        (
            AUDIT, "shadow.epochs", ("--shadow.epochs", "0"), {"shadow": {"epochs": 0}},
            ("--shadow.epochs must be >= 1", "shadow.epochs in {file} must", "shadow.epochs must"),
        ),
        (
            AUDIT, "nonmembers_options.limit", ("--nonmembers.limit", "-1"),
            {"nonmembers_options": {"limit": -1}},
            ("--nonmembers.limit must be", "nonmembers_options.limit in {file} must be",
             "nonmembers_options.limit must be"),
        ),
        (
            SIMULATE, "attack.lpla.p", ("--attack.lpla.p", "9"), {"attack": {"lpla": {"p": 9}}},
            ("--attack.lpla.p must be <= 5", "attack.lpla.p in {file} must", "attack.lpla.p must"),
        ),
        (
            SIMULATE, "federation.clients", ("--clients", "0"), {"federation": {"clients": 0}},
            ("--clients must be >= 1", "federation.clients in {file} must",
             "federation.clients must"),
        ),
        (  # found when the whole is checked, not the value alone
            SIMULATE, "defended_clients", ("--defended-clients", "3"), {"defended_clients": [3]},
            ("--defended-clients 3 needs --defense NAME",
             "defended_clients: 3 in {file} needs --defense NAME",
             "defended_clients=3 needs defense.name=NAME"),
        ),
    ],
)  # fmt: skip
def test_wrong_option__is_named_as_it_was_given(
    command: Command, path: str, flags: tuple[str, ...], tree: dict[str, Any],
    told: tuple[str, str, str], tmp_path: Path,
) -> None:  # fmt: skip
    audited = {"encoder": "x", "members": "a", "nonmembers": "parquet:b"}
    lower: dict[str, Any] = {"attacks": "lpla"} | (audited if command is AUDIT else {})
    around = [word for k, v in lower.items() for word in (f"--{k}", v)]
    assert refused(command, *around, *flags).startswith(told[0])
    file = tmp_path / "settings.yaml"
    file.write_text(dump(lower | tree))
    assert refused(command, "--config", str(file)).startswith(told[1].format(file=file))
    with pytest.raises(InputError) as caught:
        command.refuse(from_tree(command.settings, lower | tree))
    assert str(caught.value).startswith(told[2])
    assert caught.value.paths[0] == path


def test_wrong_file__is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("pretrain: {rounds: 3}\nfederation: {rounds: 4}\n")
    said = refused(SIMULATE, "--config", str(file))
    assert said.startswith(f"unknown option pretrain.rounds in {file}") and said.count("file") < 2
    file.write_text("encoder: x.onnx\nprecision: bfloat16\n")
    assert refused(AUDIT, "--config", str(file)).startswith(f"precision: bfloat16 in {file}: an ")


def test_typed_flag__is_said_as_typed_and_the_files_own_key_where_no_flag_is(
    tmp_path: Path,
) -> None:
    assert refused(SIMULATE, "--federation.clients=0").startswith("--federation.clients must be")
    file = tmp_path / "run.yaml"
    file.write_text("federation: {clients: 1}\nattacker: active\n")
    assert refused(SIMULATE, "--config", str(file), "--malicious", "2").startswith(
        f"federation.clients: 1 in {file} attacker: active in {file} --malicious 2 leaves no honest"
    )


def test_another_commands_line__stays_as_it_is_in_python() -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
    from tests.auditing.brought import tiny

    report = audit(tiny(), images[:25], images[25:], attacks="lpla,ascent,lira", shadows=0)
    reasons = {row["attack"]: row["reason"] for row in report["not_run"]}
    assert reasons == {
        "ascent": "takes part in the training: fedmia simulate --attacker active runs it",
        "lira": "needs shadow encoders (shadows=N, or shadow_encoders=FOLDER)",
    }


def test_unknown_option_of_the_library__is_named_with_the_nearest() -> None:
    images = np.zeros((4, 3, 8, 8), np.uint8)
    with pytest.raises(InputError, match="unknown option query_budgt; did you mean 'query_budget'"):
        audit(object, images, images, query_budgt=3)  # type: ignore[arg-type]


def test_new_option__is_one_field(tmp_path: Path) -> None:
    """Flag, YAML, help, range check, round trip: all read off the dataclass."""

    @dataclass(frozen=True)
    class More(Audit):
        patience: int = option(3, "how long it waits", ge=1)

    command = replace(AUDIT, root=More)
    assert "--patience INT" in help.help_page(command, 90)
    settings = parse(command, ["--encoder", "x", "--patience", "4"]).settings
    assert settings.patience == 4
    file = tmp_path / "more.yaml"
    file.write_text(dump(to_tree(settings)))
    assert parse(command, ["--config", str(file)]).settings == settings
    assert refused(command, "--encoder", "x", "--patience=0").startswith("--patience must be >= 1")
    assert "did you mean '--patience'" in refused(command, "--patienc", "3")


def test_settings__pickle_with_the_tongue_in_which_they_were_given() -> None:
    settings = parse(SIMULATE, ["--clients", "4"]).settings
    back: Experiment = pickle.loads(pickle.dumps(settings))
    assert (
        back == settings
        and format_error(opt("federation.clients", 4), back.spelling) == "--clients 4"
    )


def test_opt__marks_survive_in_another_error() -> None:
    inner = InputError(f"{opt('data.size', 3)} is\ntoo small")
    outer = InputError(
        f"{opt('members')}: {map_options(inner.text, lambda path: path.replace('data', 'members'))}"
    )
    assert str(outer) == "members: members.size=3 is too small"
    assert outer.paths == ("members", "members.size") and inner.paths == ("data.size",)
    assert format_error(outer.text, lambda path, value: f"<{path}|{value}>") == (
        "<members|None>: <members.size|3> is too small"
    )


def test_error__keeps_its_options_apart_from_its_words() -> None:
    """Whoever reports it says them; nothing of how they are noted reaches the message."""
    error = InputError(f"{opt('federation.rounds', 3)} of {opt('clients')} is\n{opt('x', (1, 2))}")
    assert error.options == [("federation.rounds", "3"), ("clients", None), ("x", "1,2")]
    assert str(error) == "federation.rounds=3 of clients is x=1,2"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    error.spelling = lambda path, value: f"--{path}"
    assert str(error) == "--federation.rounds of --clients is --x"


def test_messages__hold_no_private_use_characters() -> None:
    root = Path(__file__).resolve().parents[2]
    files = [
        p for name in ("fedmia", "clients", "strategies") for p in root.glob(f"{name}/**/*.py")
    ]
    private = re.compile("[\ue000-\uf8ff]|\\\\u[ef][0-8]", re.I)
    assert files and not [p for p in files if private.search(p.read_text(encoding="utf-8"))]
    assert not private.search(opt("federation.rounds", 3))
