"""Options without effect under the other settings: the user who gives one means something else.

Of options of one plugin or section the field itself says what it needs (`needs` of
`fedmia.options.option.option`). Here stands what options need of other settings. A value equal to
the default asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from fedmia.attacks.base import ActiveAttack
from fedmia.config.data import GENERATED
from fedmia.config.layout import Flat, layout
from fedmia.config.norms import norm_of
from fedmia.config.roles import is_client
from fedmia.config.tree import flatten, from_tree, read_values, to_tree
from fedmia.data.base import Dataset
from fedmia.options import registry
from fedmia.options.errors import InputError, format_value, opt

Root = TypeVar("Root")


class Need(NamedTuple):
    """What options need to have an effect.

    Attributes:
        met: whether the settings have it.
        words: why they have no effect without it, as the end of a sentence.
    """

    met: Callable[[Any], Any]
    words: str


RAY = Need(lambda e: e.backend == "ray", f"without {opt('backend', 'ray')}")
ROLE = Need(lambda e: is_client(e.attacker), f"without a client as {opt('attacker')}")
ACTIVE = Need(
    lambda e: e.active_attack is not None,
    f"without an attack that crafts updates, as of {opt('attacker', 'active')}",
)
ATTACKED = Need(lambda s: s.attacks, f"without {opt('attacks')}")
FILES = Need(lambda e: e.data.plugin not in GENERATED, "on images that are in no file")
IMAGES = Need(lambda a: a.member_embeddings is None, f"beside {opt('member_embeddings')}")
SOURCES = Need(lambda a: a.members is not None, f"without {opt('members')}")
TRAINED = Need(lambda s: s.shadows, f"without {opt('shadows', 'N')}")
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
    "query_budget": ATTACKED,
    "sweep": Need(
        lambda e: any(not _is_active(name) for name in e.attacks), "without a passive attack"
    ),
    "ray_address": RAY,
    "cpus_per_client": RAY,
    "gpus_per_client": RAY,
    "clients_at_once": Need(
        lambda e: e.backend == "inline" or e.clients_at_once == 1,
        f"without {opt('backend', 'inline')}",
    ),
    "data.dir": FILES,
    "data.pixel_range": FILES,
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
    **dict.fromkeys(("batch", "checkpoint_key", "allow_missing", "allow_random"), IMAGES),
    **dict.fromkeys(("access", "precision", "augment"), IMAGES),
    **dict.fromkeys(("data_dir", "channels", "skip_unreadable"), SOURCES),
    "cache": TRAINED,
    "shadows": SHADOWS,
}
OF_BENCHES: Mapping[str, Need] = {
    **dict.fromkeys(("knows", "targets", "submit"), RUNS),
    "cache": TRAINED,
    "shadows": Need(lambda b: any(_reads_shadows(name, b.attack) for name in b.attacks), WITHOUT),
}
OF_STUDIES: Mapping[str, Need] = {
    "keep_snapshots": Need(lambda s: not s.encoders, f"beside {opt('encoders')}"),
}


def _is_active(attack: str) -> bool:
    return issubclass(registry.load("attack", attack), ActiveAttack)


def _reads_shadows(attack: str, options: Mapping[str, Any]) -> bool:
    return bool(registry.build("attack", attack, options.get(attack, {})).asks_shadows())


def find_idle(settings: Any, flat: Mapping[str, Any]) -> dict[str, InputError]:
    """Options that have no effect.

    Args:
        settings: of a command, built.
        flat: what they were built of.

    Returns:
        The path of each such option of `flat` -> the error that refuses it.
    """
    root = type(settings)
    values, _ = read_values(root, flat)
    complete = flatten(root, to_tree(settings))
    reasons = dict(_reasons(settings, values, complete))
    idle = {
        path: InputError(f"{opt(path, values[path])} has no effect {words}")
        for path, words in reasons.items()
    }
    return {**idle, **settings.idle}


def _reasons(settings: Any, values: Flat, complete: Flat) -> Iterator[tuple[str, str]]:
    """Path of each option that has no effect, and why."""
    root: Any = type(settings)
    shape, needs = layout(root), settings.needs
    for path, value in values.items():
        if path.partition(".")[0] in shape.lists:
            continue
        field = shape.leaf(path, values)[0]
        if value == field.default:
            continue
        need = needs.get(path) or needs.get(path.partition(".")[0])
        if need is not None and not need.met(settings):
            yield path, need.words
        elif words := _lacking(field.metadata.get("needs"), path, complete):
            yield path, words


def _lacking(needs: Any, path: str, complete: Flat) -> str:
    """What an option lacks of the one beside it; empty: nothing, or that one is not known."""
    if not needs:
        return ""
    name, *allowed = needs
    beside = f"{path.rpartition('.')[0]}.{name}"
    if beside not in complete:
        return ""
    value = complete[beside]
    if value in allowed if allowed else value not in (None, False, 0):
        return ""
    return f"without {opt(beside, ' or '.join(map(format_value, allowed)) if allowed else ...)}"


def build_effective(
    root: type[Root], flat: Mapping[str, Any], trust_plugins: bool = False
) -> tuple[Root, dict[str, InputError]]:
    """Build settings without the options that have no effect.

    Args:
        root: the dataclass of a command's settings.
        flat: values by path.
        trust_plugins: as of `fedmia.config.fields.Settings`.

    Returns:
        The settings, and the path of each option that is left out -> the error for a user who gave
        it.

    Raises:
        InputError: as of `fedmia.config.tree.from_tree`.
    """
    built: Any = from_tree(root, flat, trust_plugins=trust_plugins)
    if idle := find_idle(built, flat):
        effective = {path: value for path, value in flat.items() if path not in idle}
        built = from_tree(root, effective, trust_plugins=trust_plugins)
    return built, idle
