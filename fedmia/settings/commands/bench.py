"""The options of a bench, checked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmia.settings import option
from fedmia.settings.choices import Values
from fedmia.settings.commands.effects import OF_BENCHES
from fedmia.settings.commands.roles import check_attack_options
from fedmia.settings.errors import InputError, opt
from fedmia.settings.fields import Settings, options_of


@dataclass(frozen=True)
class Bench(Settings):
    """One attack on the targets of a bench, or one check of an entry.

    Attributes:
        attack: options of the attack, under its name.

    Raises:
        InputError: on construction, for neither an attack nor a check, or both.
    """

    needs: ClassVar[Mapping[str, Any]] = OF_BENCHES

    name: str = option("", "the attack: built-in, or package.module:Class", hole="ATTACK")
    bench: str = option("encoders-v1", "the bench: its name, or its folder")
    data: tuple[str, ...] = option(
        (), "sources of the targets' images, such as parquet:FILE,parquet:FILE (none: digits alone)"
    )
    knows: str = option(
        "both",
        "sides of which the attacker knows images: both, or nonmembers alone",
        choices=("both", "nonmembers"),
    )
    shadows: int = option(0, "shadow encoders that the attacker trains on each target", ge=0)
    cache: str | None = option(None, "folder that keeps trained shadows (none: nowhere)")
    targets: tuple[str, ...] = option((), "names of targets (none: all)")
    submit: str | None = option(
        None, "folder that gets the attack's scores as an entry of the bench", hole="FOLDER"
    )
    check: str | None = option(
        None, "folder of an entry (ATTACK/HASH) to be checked, as the bench's keepers do",
        hole="FOLDER",
    )  # fmt: skip
    attack: Mapping[str, Values] = options_of("attacks", "attack", several=True)

    @classmethod
    def attack_names(cls, flat: Mapping[str, Any]) -> tuple[str, ...]:
        """The attack's name in flat settings, if there is one."""
        return (str(flat["name"]),) if flat.get("name") else ()

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attack's name, if there is one."""
        return (self.name,) if self.name else ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.name) == (self.check is not None):
            raise InputError(f"give the name of an attack, or {opt('check', 'ENTRY')}: one of both")
        check_attack_options(self.attack, self.attacks)
