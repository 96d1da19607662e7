"""Which attacks an audit runs: the names that `--attacks` stands for."""

from __future__ import annotations

import glob
from collections.abc import Container, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedmia.attacks.base import ActiveAttack, DatasetAttack
from fedmia.settings import registry
from fedmia.settings.commands.roles import QUICK, expand_lists, is_quick
from fedmia.settings.errors import InputError, opt

AUTO = "auto"  # value of `--attacks`
# Options of an audit that ask for attacks beside the quick ones.
ASKS = ("shadow.count", "shadow.encoders", "groups", "encoder.checkpoint", "federation.recording",
        "federation.notes")  # fmt: skip


def expand_names(
    names: tuple[str, ...], asks: Mapping[str, Any] = MappingProxyType({}), own: Container[str] = ()
) -> tuple[str, ...]:
    """Names of attacks: `all` is every one of the registry, those that cannot run included, so that
    the report says why they did not; `quick` stands for those that run in little time, `auto` for
    these and for those that an option asks for.

    Args:
        names: of attacks or lists.
        asks: path of each of ASKS -> its value, for `auto`.
        own: names of the attacks of which options are given.

    Returns:
        Names of attacks, each once.

    Raises:
        InputError: an unknown attack, or one named twice.
    """
    if not names:
        raise InputError(f"{opt('attacks')} names no attack")
    every = registry.names("attack")
    quick = [n for n in every if is_quick(registry.load("attack", n)) and not outside_reason(n)]
    auto = [n for n in every if n in quick or n in own or _is_asked_for(n, asks)]
    return expand_lists(names, {"all": every, QUICK: quick, AUTO: auto})


def _is_asked_for(name: str, asks: Mapping[str, Any]) -> bool:
    """Whether an option says that this attack is wanted, beside the quick ones."""
    cls = registry.load("attack", name)
    if issubclass(cls, ActiveAttack):
        return asks.get("federation.notes") is not None
    if cls.needs.vantage != "outsider":
        return has_rounds(asks)
    if issubclass(cls, DatasetAttack):
        return asks.get("groups") is not None
    trained = str(asks.get("shadow.count", 0)) != "0"
    return bool(cls.uses_shadows and (trained or asks.get("shadow.encoders") is not None))


def has_rounds(asks: Mapping[str, Any]) -> bool:
    """Whether an audit, by its options of ASKS, names a recording, or a pattern of files of
    models."""
    pattern = str(asks.get("encoder.checkpoint") or "")
    files = glob.has_magic(pattern) and not Path(pattern).exists()
    return files or asks.get("federation.recording") is not None


def outside_reason(name: str) -> str | None:
    """Why an attack has no place in an audit of a released encoder, or None if it has one."""
    cls = registry.load("attack", name)
    if issubclass(cls, ActiveAttack):
        return "takes part in the training: fedmia simulate --attacker active runs it"
    if cls.needs.vantage != "outsider":
        return f"needs the vantage of a {cls.needs.vantage}: fedmia simulate runs it"
    return None
