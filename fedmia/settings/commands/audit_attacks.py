"""Which attacks an audit runs: the names that `--attacks` stands for."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedmia.attacks.base import ActiveAttack, DatasetAttack
from fedmia.settings import registry
from fedmia.settings.commands.roles import QUICK, expand_lists, is_quick
from fedmia.settings.errors import InputError, opt

AUTO = "auto"  # value of `--attacks`


def expand_names(
    names: tuple[str, ...], options: Mapping[str, Any] = MappingProxyType({})
) -> tuple[str, ...]:
    """Names of attacks: `all` is every one of the registry, those that cannot run included, so that
    the report says why they did not; `quick` stands for those that run in little time, `auto` for
    these and for those that an option asks for.

    Args:
        names: of attacks or lists.
        options: value of each option of the audit, for `auto`.

    Returns:
        Names of attacks, each once.

    Raises:
        InputError: an unknown attack, or one named twice.
    """
    if not names:
        raise InputError(f"{opt('attacks')} names no attack")
    every = registry.names("attack")
    quick = [n for n in every if is_quick(registry.load("attack", n)) and not outside_reason(n)]
    auto = [n for n in every if n in quick or _is_asked_for(n, options)]
    return expand_lists(names, {"all": every, QUICK: quick, AUTO: auto})


def _is_asked_for(name: str, options: Mapping[str, Any]) -> bool:
    """Whether an option says that this attack is wanted, beside the quick ones."""
    cls = registry.load("attack", name)
    if name in options.get("attack", ()):
        return True
    if issubclass(cls, ActiveAttack):
        return options.get("notes") is not None
    if cls.needs.vantage != "outsider":
        return has_rounds(options)
    if issubclass(cls, DatasetAttack):
        return options.get("groups") is not None
    trained = str(options.get("shadows", 0)) != "0"
    return bool(cls.uses_shadows and (trained or options.get("shadow_encoders") is not None))


def has_rounds(options: Mapping[str, Any]) -> bool:
    """Whether the options of an audit name a recording, or a pattern of files of models."""
    pattern = str(options.get("checkpoint") or "")
    files = glob.has_magic(pattern) and not Path(pattern).exists()
    return files or options.get("federation") is not None


def outside_reason(name: str) -> str | None:
    """Why an attack has no place in an audit of a released encoder, or None if it has one."""
    cls = registry.load("attack", name)
    if issubclass(cls, ActiveAttack):
        return "takes part in the training: fedmia simulate --attacker active runs it"
    if cls.needs.vantage != "outsider":
        return f"needs the vantage of a {cls.needs.vantage}: fedmia simulate runs it"
    return None
