"""What a command line and its files come to: lines that say the same, and what each of a table
resolves to, beside the defaults."""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedmia.settings import registry
from fedmia.settings.errors import format_value
from fedmia.settings.tree import from_tree, to_tree
from fedmia.settings.yamlfile import dump
from tests.options import option_fields
from tests.settings.conftest import AUDIT, IMAGES, built, in_files, values, written
from tests.snapshots import Snapshot

FILES = {
    "small": "federation: {clients: 4, rounds: 3}\nseed: 5\npartition: {name: dirichlet}\n",
    "flat": "federation.clients: 4\nrounds: 3\nseed: 5\n",
    "above": "base: small.yaml\nfederation: {clients: 5}\n",
    "overfit": "base: overfit\nattacker: none\n",
    "digits": "partition: shards\ndata: digits\npretrain: none\nattacks: similarity, internal\n",
    "nothing": "defense: null\n",
    "exponents": "train: {lr: 1e-3, weight_decay: 5E-4}\n",
    "rows": "data: {name: 'parquet:a', image_column: x, size: 8}\n",
    "active": "attacker: active\npartition: dirichlet\npretrain: pooled\n",
    "names": "defense: 'dpsgd,gaussian'\n",
    "list": "defense: [dpsgd, gaussian]\n",
    "layers": "defense: [{name: dpsgd}, gaussian]\n",
    "named": "defense: {name: 'dpsgd, gaussian'}\n",
    "noise": "defense: {name: 'dpsgd,gaussian', dpsgd: {noise_multiplier: 0.3}}\n",
    "own": "defense: [{name: dpsgd, clients: '0-2,5'}, {name: gaussian}]\ndefended_clients: [7]\n",
    "two": "defense: [{name: dpsgd, epsilon: 8, clients: [0]}, {name: gaussian, clients: [1]}]\n",
    "twice": "defense: [{name: dpsgd, epsilon: 1, clients: [0]},"
    " {name: dpsgd, epsilon: 8, clients: [1]}]\n",
    "open": "loss: apps:loss\nlimit: 100\n",
    "server": "attacker: server\nfederation: {rounds: 2}\nattacks: [similarity]\n",
    "tradeoff": "attacks: [similarity]\ndefenses: [gaussian, dpsgd]\nseeds: 2\nseed: 3\n"
    "strengths: {gaussian: [0.1, 0.2], dpsgd.epsilon: [8]}\n",
    "grids": "base: small.yaml\nattacks: none\nseeds: 2\nover:\n  - {strategy: [fedavg, fedprox]}\n"
    "  - {strategy: [fedprox], strategy.mu: [1, 2]}\n",
    "plugins": "over: {partition: [iid, {name: dirichlet, alpha: 2}]}\n",
}
# Lines that come to the same settings, | between them.
SAME = """
simulate --clients 4 | simulate --clients=4 | simulate --federation.clients 4
simulate | simulate --defended-clients none | simulate --defended_clients=none
simulate | simulate --config {nothing} | simulate --defense none
simulate --pretrain pooled --pretrain-epochs 2 | simulate --pretrain.mode pooled --pretrain.epochs=2
simulate --pretrain public --split.public 9 --pretrain-epochs 100 | simulate --pretrain public --split.public 9
simulate --attacks similarity --attack.similarity.views 4 | simulate --attack.similarity.views=4 --attacks=similarity
simulate --train.lr 1e-3 --train.weight_decay 5E-4 | simulate --config {exponents}
simulate --clients 4 --rounds 3 --seed 5 | simulate --config {flat} | simulate --config {small}
simulate --clients 5 --rounds 3 --seed 5 | simulate --config {above} | simulate --config {small} --clients 5
simulate --config smoke --seed 3 | simulate --seed 3 --config smoke
simulate --config overfit --attacker none | simulate --config {overfit}
simulate --partition shards --dataset digits --attacks similarity,internal | simulate --config {digits}
simulate --partition file:some/where:a.json --attacks none | simulate --partition file --partition.path some/where:a.json --attacks none
simulate --dataset parquet:b --data.image_column x --size 8 | simulate --config {rows} --dataset parquet:b
simulate --dataset npz:b --size 8 | simulate --config {rows} --dataset npz:b
simulate --attacker active --partition iid --attacks similarity | simulate --config {active} --partition iid --pretrain none --attacks similarity
simulate --attacker passive --attacks all | simulate --config {active} --attacker passive --attacks all --pretrain none
simulate --defense dpsgd,gaussian | simulate --config {names} | simulate --config {list} | simulate --config {layers} | simulate --config {named}
simulate --defense dpsgd,gaussian --defense.dpsgd.noise_multiplier 0.3 | simulate --config {noise}
simulate --defense dpsgd --defense.epsilon 8 | simulate --defense dpsgd --defense.dpsgd.epsilon 8
simulate | simulate --config {two} --defense none
simulate --federation.placebo false | simulate --federation.placebo FALSE
audit --federation R --encoder E --loss apps:loss --limit 100 | audit --config {open} --federation R --encoder E
study smoke --over strategy=fedavg,fedprox --seeds 2 | study --config smoke --seeds 2 --over strategy=fedavg,fedprox
study --defenses none,dpsgd | study --defenses dpsgd
study {server} --defenses gaussian --federation.snapshots 2 | study --attacker server --rounds 2 --attacks similarity --defenses gaussian --federation.snapshots 2
"""  # noqa: E501
# What comes of each is stored beside this file.
RESOLVED = """
simulate --attacker passive
simulate --attacker active --malicious 2 --clients 5 --defense gaussian --rounds 4
simulate --attacker active --attacks ascent,similarity --defended-clients 2,0 --defense logistic
simulate --attacker active --attacks quick
simulate --attacker server --attacks similarity
simulate --attacker server --attacks similarity --federation.secure_aggregation true
simulate --attacks lpla,main,similarity
simulate --attacks none
simulate --ssl byol
simulate --ssl mocov2
simulate --ssl.flip 0.5 --ssl.crop_min 0.4
simulate --ssl mocov2 --dataset cifar10
simulate --dataset synthetic
simulate --ssl mocov2 --ssl.crop_min 0.3
simulate --dataset cifar10 --ssl.flip 0
simulate --dataset digits --ssl.operations blur,crop --ssl.jitter 0
simulate --dataset npz:a.npz --fit pad --pixel-range 0,4095
simulate --ssl.symmetric true --ssl.queue 64 --ssl.temperature 1 --ssl.dim 32
simulate --attacks internal --attack.internal.layers layer1,encoder --train.lr 0.30000000000000004
simulate --federation.client_timeout none --clients-at-once 3 --checkpoint-every none
simulate --pretrain pooled --config {small} --clients 6 --partition.alpha 0.2
simulate --config overfit
simulate --config overfit-cifar10
simulate --config {own}
simulate --config {two} --defense.gaussian.scale 3
simulate --config {two} --defense dpsgd
simulate --config {twice}
AUDIT
AUDIT --attacks quick
AUDIT --attacks quick,partcrop,lpla
AUDIT --shadows 2
AUDIT --shadow-encoders DIR
AUDIT --attack.partcrop.crops 9
AUDIT --known 8 --limit 9 --sweep known=2,4 --seed 7 --augment.crop_min 0.3
audit --encoder E --checkpoint no-such/*.npz IMAGES
audit --encoder E --checkpoint FILE.pth IMAGES
audit --encoder E --federation REC IMAGES
audit --encoder E --federation REC --notes NOTES IMAGES
study smoke --over strategy=fedavg,fedprox --over train.lr=1e-2,0.1 --seeds 2 --seed 4 --rounds 3
study --over ssl=moco,byol
study --attacker passive --over attacks=similarity;similarity,internal
study --over defense=none,gaussian
study --over attack.similarity.views=3,4 --attacks similarity
study --over attacker=none,active --attack-rounds 2
study {grids}
study {grids} --over partition.alpha=0.1,1 --train.lr 1e-3
study {plugins}
study --defenses gaussian,fedprox,dpsgd --strengths gaussian=0.1,1;fedprox.mu=0.5 --seeds 2 --seed 4
study --defenses gaussian,fedprox --strengths gaussian=1 --defended-clients 0-4
study {tradeoff} --strengths dpsgd.epsilon=4 --train.lr 1e-3
study --encoders a/RUN@0,10,b.pth,C@3 --seeds 2 --known 8 --seed 7 --size 16 IMAGES
study --encoders a/x.pth,b/x.pth IMAGES
"""


@pytest.mark.parametrize("lines", SAME.strip().splitlines())
def test_lines__come_to_the_same(lines: str, tmp_path: Path) -> None:
    (both,) = in_files(lines, FILES, tmp_path)
    results = [built(line) for line in both.split(" | ")]
    for one in results:
        if both.startswith("study"):
            assert [cell.tree for cell in one.cells] == [cell.tree for cell in results[0].cells]
        else:
            assert one == results[0] and written(one) == written(results[0])


@cache
def defaults() -> dict[type, dict[str, Any]]:
    """Every option of a run and of an audit of which nothing is said."""
    return {type(one): values(one) for one in (built("simulate"), built(AUDIT))}


def beside_defaults(settings: Any) -> dict[str, Any]:
    """What the settings hold and a run or an audit by default does not; of attacks and defences the
    options that differ from their own defaults."""
    plain, own = defaults()[type(settings)], dict[str, Any]()
    for path, value in values(settings).items():
        section, _, rest = path.partition(".")
        name, _, option = rest.rpartition(".")
        if section in ("attack", "defense") and option != "clients" and name:
            fields = option_fields(registry.load(section, name.partition("#")[0]))
            default = next(one.default for one, _ in fields if one.name == option)
        else:
            default = plain.get(path, ...)
        own |= {path: value} if value != default else {}
    return own


def parts(settings: Any) -> list[str]:
    """What follows from an experiment's settings."""
    roles = {"malicious": settings.malicious_clients, "honest": settings.honest_clients,
             "defended": settings.defended}  # fmt: skip
    said = [f"{name} {format_value(clients)}" for name, clients in roles.items()]
    layers = [f"{o.name} {format_value(settings.layer_client_ids(o))}" for o in settings.defense]
    said += [f"attacked rounds {settings.attack_rounds}", f"placebo {settings.has_placebo}"]
    return [*said, f"vantage {settings.threat.vantage}", *layers]


def told(own: dict[str, Any]) -> list[str]:
    return [f"{path}: {value}" for path, value in own.items()]


def resolve(line: str) -> str:
    """What a line comes to, as the table stores it; of a study what is of each point alone."""
    settings = built(line.replace("AUDIT", AUDIT).replace("IMAGES", IMAGES))
    if not line.startswith("study"):
        said = told(beside_defaults(settings))
        if line.startswith("simulate"):
            said.append("-> " + "; ".join(parts(settings)))
        return "\n  ".join([line, *said])
    points = dict[str, list[str]]()
    seeds = dict[str, list[int]]()
    for cell in settings.cells:
        own = beside_defaults(from_tree(type(cell.first), cell.tree))
        seeds.setdefault(cell.point, []).append(own.pop("seed", 0))
        assert points.setdefault(cell.point, told(own)) == told(own)
    (every,) = {(*of,) for of in seeds.values()}
    shared = [one for one in points[settings.cells[0].point]
              if all(one in own for own in points.values())]  # fmt: skip
    said = [f"-> {point}: {'; '.join(one for one in own if one not in shared)}"
            for point, own in points.items()]  # fmt: skip
    return "\n  ".join([line, f"seeds {format_value(every)}", *shared, *said])


def test_table__resolves_as_stored(tmp_path: Path, snapshot: Snapshot) -> None:
    snapshot("\n".join(map(resolve, in_files(RESOLVED, FILES, tmp_path))))


def test_config_yaml__read_back_is_the_same_run(tmp_path: Path) -> None:
    """With what a run notes beside its settings."""
    file = tmp_path / "config.yaml"
    for line in in_files(RESOLVED, FILES, tmp_path):
        command = line.replace("AUDIT", AUDIT).replace("IMAGES", IMAGES)
        settings = built(command)
        file.write_text(dump(settings.tree() if line.startswith("study") else to_tree(settings),
                             {"versions": {"torch": "2"}, "commit": None}))  # fmt: skip
        if line.startswith("study"):
            again = built(f"study {file}")
            assert [c.key for c in again.cells] == [c.key for c in settings.cells], line
        else:
            again = built(f"{command.split()[0]} --config {file}")
            assert again == settings and written(again) == written(settings), line


def test_defaults__as_help_shows_them_can_be_typed() -> None:
    """Each alone, by its dotted flag: the settings stay what they are. A number of members alone
    leaves that of the others open."""
    for line in ("simulate", AUDIT):
        settings = built(line)
        for path, value in values(settings).items():
            text = format_value(tuple(value) if isinstance(value, list) else value)
            if text and path not in ("members", "nonmembers", "encoder.name", "split.members"):
                assert built(f"{line} --{path} {shlex.quote(text)}") == settings, path
