"""The command line: flags, precedence, pages, presets, one-line errors."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedmia.cli import help as catalogue
from fedmia.cli.command import Invocation, parse, print_bad_input
from fedmia.cli.commands import AUDIT, COMMANDS, SIMULATE
from fedmia.settings import registry
from fedmia.settings.commands.experiment import Experiment, expand_attacks
from fedmia.settings.errors import InputError
from fedmia.settings.flags import read
from fedmia.settings.layout import layout
from fedmia.settings.options import option_fields
from fedmia.settings.presets import PRESETS
from fedmia.settings.tree import flatten, merge, to_tree
from fedmia.settings.yamlfile import dump, load


def asked(line: str) -> Invocation:
    """What a command line of `fedmia.simulate` asks for."""
    return parse(SIMULATE, shlex.split(line))


def built(line: str) -> Experiment:
    """The experiment of a command line."""
    experiment = asked(line).settings
    assert isinstance(experiment, Experiment)
    return experiment


def refused(line: str) -> str:
    """The one-line message with which a command line is refused."""
    with pytest.raises(InputError) as caught:
        asked(line)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_parse__nothing_is_the_defaults() -> None:
    experiment = asked("")
    assert experiment.settings == Experiment.complete()
    assert (experiment.out, experiment.quiet, experiment.json, experiment.page) == (
        None, False, False, None,
    )  # fmt: skip


OPTIONS = layout(Experiment).flags().options


@pytest.mark.parametrize(("path", "hole"), [(path, hole) for path, (hole, _) in OPTIONS.items()])
def test_parse__every_option_is_reachable_by_its_short_and_its_dotted_flag(
    path: str, hole: str
) -> None:
    for flag in {SIMULATE.flag_of(path), f"--{path}", f"--{path.replace('_', '-')}"}:
        if hole == "BOOL":  # the flag alone says true
            assert read(SIMULATE, [flag]).options == read(SIMULATE, [flag, "true"]).options != {}
            continue
        assert f"{flag} needs a value" in refused(flag)  # known, or it would say so


@pytest.mark.parametrize(
    "same",
    [
        ("--clients 4", "--clients=4", "--federation.clients 4", "--federation.clients=4"),
        ("--pretrain pooled --pretrain-epochs 2", "--pretrain.mode pooled --pretrain.epochs=2"),
        ("--pretrain public --split.public 9",
         "--pretrain public --split.public 9 --pretrain-epochs 100"),
        ("--defended-clients none", "--defended_clients=none", ""),
        ("--attacks similarity --attack.similarity.views 4",
         "--attack.similarity.views=4 --attacks=similarity"),
    ],
)  # fmt: skip
def test_parse__spellings_of_the_same(same: tuple[str, ...]) -> None:
    assert len({dump(to_tree(built(line))) for line in same}) == 1


def test_parse__plugin_options_take_the_types_of_the_plugin() -> None:
    experiment = built(
        "--ssl.symmetric true --ssl.queue 64 --ssl.temperature 1 --attacks internal "
        "--attack.internal.layers layer1,encoder"
    )
    options = experiment.ssl.options
    assert (options["symmetric"], options["queue"], options["temperature"]) == (True, 64, 1.0)
    assert type(options["temperature"]) is float
    assert experiment.attack["internal"]["layers"] == ("layer1", "encoder")


def test_bad_input__printed_as_one_line_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_bad_input(InputError("no such\nfile 'x'")) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == "fedmia: error: no such file 'x'\n"


def test_config__file_over_defaults_and_flags_over_file(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("federation: {clients: 4, rounds: 3}\nseed: 5\npartition: {name: dirichlet}\n")
    experiment = built(f"--config {file} --clients 6 --partition.alpha 0.2")
    assert (experiment.federation.clients, experiment.federation.rounds) == (6, 3)
    assert experiment.seed == 5
    assert experiment.partition.name == "dirichlet" and experiment.partition.options["alpha"] == 0.2


def test_config__a_runs_own_file_repeats_it(tmp_path: Path) -> None:
    first = built("--attacker active --partition dirichlet --ssl.dim 32 --seed 3")
    file = tmp_path / "config.yaml"
    file.write_text(dump(to_tree(first), {"versions": {}, "commit": None}))
    assert built(f"--config {file}") == first


def test_config__another_plugin_by_flag_drops_the_files_options(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        dump(to_tree(built("--attacker active --partition dirichlet --pretrain pooled")))
    )
    experiment = built(f"--partition iid --attacks similarity --pretrain none --config {file}")
    assert experiment.partition.options == {} and experiment.pretrain.epochs == 0
    assert set(experiment.attack) == {"similarity"}
    passive = built(f"--config {file} --attacker passive --attacks all")
    assert "ascent" not in passive.attacks


def test_merge__another_file_of_one_source_keeps_its_options() -> None:
    lower = {"data": {"name": "parquet:a", "image_column": "x", "size": 8}}
    flat = flatten(Experiment, lower)
    same = merge(Experiment, flat, {"data.name": "parquet:b"})
    assert same == {**flat, "data.name": "parquet:b"}
    other = merge(Experiment, flat, {"data.name": "digits"})
    assert other == {"data.name": "digits", "data.size": 8}


def test_config__mistakes_name_the_file_and_no_flag_hides_them(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    for text in ("train: {lr: fast}", "train: {lrr: 3}", "out: RUN"):
        file.write_text(text)
        said = {refused(f"--config {file}{more}") for more in ("", " --train.lr 1")}
        assert len(said) == 1 and str(file) in said.pop()


def test_config__is_completed_by_flags(tmp_path: Path) -> None:
    """What is wrong of the file alone names it; what the flags bring is no fault of the file."""
    file = tmp_path / "a.yaml"
    file.write_text("loss: apps:loss\nlimit: 100\n")
    audit = parse(AUDIT, ["--config", str(file), "--federation", "R", "--encoder", "E"]).settings
    assert (audit.federation.loss, audit.split.limit, audit.encoder.name) == ("apps:loss", 100, "E")
    for more, names_it in (
        ([], True),
        (["--encoder", "E", "--loss", "none", "--members", "m"], False),
    ):
        with pytest.raises(InputError) as refusal:
            parse(AUDIT, ["--config", str(file), *more])
        assert (str(file) in str(refusal.value)) == names_it


@pytest.mark.parametrize("name", COMMANDS)
def test_help__every_option_and_group_within_80_columns(name: str) -> None:
    command = COMMANDS[name]
    page = catalogue.help_page(command, 80)
    assert max(map(len, page.splitlines())) <= 80
    flags = {f"--{own.replace('_', '-')}" for own in (*command.own, *command.shape.lists)}
    for flag in flags | {command.flag_of(path) for path in command.shape.options}:
        assert re.search(rf"^  {re.escape(flag)} ", page, re.M), flag
    assert all(f"\n{heading}\n" in page for heading in ("Run", *command.groups))


def test_help__defaults_limits_and_choices() -> None:
    page = asked("--help").page
    assert page is not None and page == asked("-h").page
    batch = Experiment.complete().train.batch_size
    assert f"(default {batch}, >= 1)" in page and "{none,passive,active,server}" in page


@pytest.mark.parametrize("kind", sorted(registry.KINDS))
def test_list__every_plugin_with_summary_paper_and_options(kind: str) -> None:
    flat = " ".join(catalogue.list_page("", 80).split())
    detail = " ".join(catalogue.list_page(kind, 80).split())
    for name in registry.names(kind):
        cls = registry.load(kind, name)
        for page in (flat, detail):
            assert name in page
            assert " ".join(registry.summary(cls).split()) in page
            assert " ".join(registry.paper(cls).split()) in page
        for one, _ in option_fields(cls):
            assert f".{one.name} " in detail


def test_list__within_80_columns() -> None:
    for kind in ("", *registry.KINDS):
        assert max(map(len, catalogue.list_page(kind, 80).splitlines())) <= 80, kind
    assert asked("--list ssl").page == catalogue.list_page("ssl")
    assert asked("--list").page == catalogue.list_page()
    assert parse(AUDIT, ["--list"]).page == catalogue.list_page("attack")
    assert parse(AUDIT, ["--list", "dataset", "--quiet"]).page == catalogue.list_page("dataset")


def test_short_flags__stand_for_options_that_exist() -> None:
    for command in (SIMULATE, AUDIT):
        shape = command.shape
        paths = set(shape.options)
        assert set(shape.short.values()) <= paths
        grouped = [w for group_flags in command.groups.values() for w in group_flags]
        assert all(any(p == w or p.startswith(w) for p in paths) for w in grouped)


def test_plugins__none_has_an_option_named_like_one_of_its_section() -> None:
    of_data = {"name", "dir", "size", "mean", "std", "options"}
    for kind in registry.KINDS:
        own = of_data if kind == "dataset" else {"name"}
        for name in registry.names(kind):
            assert not own & {f.name for f, _ in option_fields(registry.load(kind, name))}, name


@pytest.mark.parametrize(
    "name",
    [
        p.relative_to(PRESETS).with_suffix("").as_posix()
        for p in PRESETS.rglob("*.yaml")
        if p.parent.name not in {"sweeps", "tradeoffs", "audits"}
    ],
)
def test_presets__are_valid_and_differ_from_the_defaults(name: str) -> None:
    experiment = built(f"--config {name}")
    assert experiment != Experiment.complete()
    assert set(load(PRESETS / f"{name}.yaml")) - {"base"} <= set(to_tree(experiment))


@pytest.mark.parametrize("name", ["overfit", "overfit-cifar10"])
def test_presets__overfit_is_a_whole_attack_on_ten_clients(name: str) -> None:
    """As the paper: pooled pre-training, a constant rate, an active client, clean rounds first."""
    settings = built(f"--config {name}")
    assert (settings.federation.clients, settings.attacker) == (10, "active")
    assert (
        settings.partition == Experiment.complete().partition
        and settings.partition.name == "dirichlet"
    )
    assert settings.attacks == expand_attacks(("main",), "active")
    assert settings.pretrain.mode == "pooled" and settings.train.schedule == "constant"
    assert (settings.attack_rounds, settings.federation.rounds) == (6, 8)


def test_out__of_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    parsed = parse(SIMULATE, ["--out=~/RUN", "--dataset", "folder:~/data", "--data_dir=~/d"])
    assert (
        parsed.out == Path("/home/me/RUN") and parsed.settings.data.name == "folder:/home/me/data"
    )
    assert str(parsed.settings.data.dir) == "/home/me/d"


def test_summary__of_a_class_without_a_docstring_is_no_signature() -> None:
    """As all are under `python -OO`."""

    @dataclass
    class Bare:
        name: int = 3

    @dataclass
    class Below(Bare):
        pass

    assert registry.summary(Bare) == registry.summary(Below) == ""
