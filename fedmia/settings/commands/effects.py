"""What options of each command need of other settings to have an effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmia.attacks.base import ActiveAttack
from fedmia.data.base import Dataset
from fedmia.settings import registry
from fedmia.settings.commands.data import GENERATED
from fedmia.settings.commands.norms import norm_of
from fedmia.settings.commands.roles import is_client
from fedmia.settings.effects import Need
from fedmia.settings.errors import opt

RAY = Need(lambda e: e.machine.backend == "ray", f"without {opt('machine.backend', 'ray')}")
ROLE = Need(lambda e: is_client(e.attacker), f"without a client as {opt('attacker')}")
ACTIVE = Need(
    lambda e: e.active_attack is not None,
    f"without an attack that crafts updates, as of {opt('attacker', 'active')}",
)
ATTACKED = Need(lambda s: s.attacks, f"without {opt('attacks')}")
FILES = Need(lambda e: e.data.plugin not in GENERATED, "on images that are in no file")
IMAGES = Need(lambda a: a.member_embeddings is None, f"beside {opt('member_embeddings')}")
SOURCES = Need(lambda a: a.members is not None, f"without {opt('members')}")
LATER = "later"  # value of `--nonmembers` that names no data source
SHADOWED = f"without {opt('shadow.count', 'N')}"
RUNS = Need(lambda b: not b.check, f"beside {opt('check')}")

WITHOUT = "without an attack that reads shadow encoders"
SHADOWS = Need(
    lambda s: any(c.plugin("attack").asks_shadows() for c in s.attack_choices.values()), WITHOUT
)
OF_EXPERIMENTS: Mapping[str, Need] = {
    "malicious": ROLE,
    "attacker_trains": ROLE,
    "federation.attack_rounds": ACTIVE,
    "federation.attacked_rate": ACTIVE,
    "federation.placebo": Need(
        lambda e: e.attacks or not e.federation.placebo, f"without {opt('attacks')}"
    ),
    "federation.batch_norm": Need(lambda e: norm_of(e) != "group", "on a model without batch norm"),
    **dict.fromkeys(("query_budget", "show_images", "prior"), ATTACKED),
    "sweep": Need(
        lambda e: any(not _is_active(name) for name in e.attacks), "without a passive attack"
    ),
    "machine.ray_address": RAY,
    "machine.cpus_per_client": RAY,
    "machine.gpus_per_client": RAY,
    "machine.clients_at_once": Need(
        lambda e: e.machine.backend == "inline" or e.machine.clients_at_once == 1,
        f"without {opt('machine.backend', 'inline')}",
    ),
    "data.dir": FILES,
    "data.pixel_range": FILES,
    "data.fit": FILES,
    "data.skip_unreadable": Need(
        lambda e: type(e.data.source()).encoded is not Dataset.encoded,
        "on images that are decoded already",
    ),
    "defended_clients": Need(
        lambda e: any(layer.clients is None for layer in e.defense),
        f"without {opt('defense', 'NAME')} that names no clients of its own",
    ),
    "pretrain.epochs": Need(
        lambda e: e.pretrain.mode != "none" or not e.pretrain.epochs,
        f"with {opt('pretrain.mode', 'none')}",
    ),
}
OF_AUDITS: Mapping[str, Need] = {
    **dict.fromkeys(("encoder", "augment", "show_images"), IMAGES),
    **dict.fromkeys(("data.dir", "data.channels", "data.skip_unreadable", "data.fit"), SOURCES),
    **dict.fromkeys(
        ("federation.order", "federation.round"),
        Need(lambda a: a.nonmembers == LATER, f"without {opt('nonmembers', LATER)}"),
    ),
    "shadow.cache": Need(lambda a: a.shadow.count, SHADOWED),
    "shadow.count": SHADOWS,
}
OF_BENCHES: Mapping[str, Need] = {
    **dict.fromkeys(("knows", "targets", "submit"), RUNS),
    "cache": Need(lambda b: b.shadows, SHADOWED),
    "shadows": Need(lambda b: any(_reads_shadows(name, b.attack) for name in b.attacks), WITHOUT),
}
OF_STUDIES: Mapping[str, Need] = {
    "keep_snapshots": Need(lambda s: not s.encoders, f"beside {opt('encoders')}"),
}


def _is_active(attack: str) -> bool:
    return issubclass(registry.load("attack", attack), ActiveAttack)


def _reads_shadows(attack: str, options: Mapping[str, Any]) -> bool:
    return bool(registry.build("attack", attack, options.get(attack, {})).asks_shadows())
