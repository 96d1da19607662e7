"""Options of attacks that simulations and audits share, under the same paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedmia.settings import option
from fedmia.settings.choices import PluginChoice, Values
from fedmia.settings.commands.points import parse_points
from fedmia.settings.fields import Settings, options_of

ATTACKS = "Attacks"  # heading of help


@dataclass(frozen=True)
class AttackSettings(Settings):
    """Settings of a command that runs attacks.

    Attributes:
        attacks: names of the attacks; a subclass says which names of lists (`all`, ..) it takes.
        attack: options of each attack, by its name.
        attack_choices: no option: the attacks that run, each with its options.

    Raises:
        InputError: on construction, for a value out of range, or a `sweep` of another form.
    """

    seed: int = option(0, "root of all randomness", ge=0)
    attacks: tuple[str, ...] = option((), "attacks to run", heading=ATTACKS)
    attack: Mapping[str, Values] = options_of("attacks", "attack", several=True)
    query_budget: int | None = option(
        None,
        "most images that one attack may embed; it uses fewer known images to stay within this",
        ge=1,
        omitted=True,
        heading=ATTACKS,
    )
    sweep: str | None = option(
        None,
        "known=25,50,.. or query_budget=1000,2000,..: every passive attack at each value",
        omitted=True,
        heading=ATTACKS,
    )
    groups: str | None = option(
        None, "subjects whose images are drawn together, such as patients: a column of the data "
        "source (of folders a depth); of an audit also a CSV file of lines side,image,subject "
        "(side: members or nonmembers; image: its file's name or its number, as of owners), or two "
        "arrays MEMBERS.npy,OTHERS.npy (not given: a list's own column of subjects; none: images "
        "are drawn one by one)",
        omitted=True,
    )  # fmt: skip
    show_images: bool = option(
        False,
        "show images and names of their files in the report, which must then be protected like "
        "the images themselves",
        omitted=True,
        heading=ATTACKS,
    )
    prior: float | None = option(
        None,
        "share of members among the records that an attacker asks about, such as 0.01: the report "
        "says how many of those that it names are members then",
        gt=0,
        lt=1,
        omitted=True,
        heading=ATTACKS,
    )
    attack_choices: Mapping[str, PluginChoice] = field(
        default_factory=dict, kw_only=True, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sweep is not None:
            parse_points(self.sweep)
