"""Other names for what a study compares: points, attacks, options that vary and their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedmia.settings.commands.defense_points import NONE, UNDEFENDED
from fedmia.settings.commands.study import format_grid_value
from fedmia.settings.errors import InputError, unknown_name
from fedmia.study.cells import CellState

if TYPE_CHECKING:
    import pandas as pd

Names = Mapping[str, str]
KINDS = ("strategy", "defense")  # options by which the view of defences knows what they are
OF_ATTACKS = ("attack", "baseline")  # columns of the table


def check_names(names: Names, cells: Sequence[CellState], attacks: Iterable[str]) -> None:
    """Refuse names that a study does not have, and one name for two things.

    Args:
        names: old -> new.
        cells: of the study.
        attacks: of the study.

    Raises:
        InputError: one line with the nearest name that there is.
    """
    attacks, points = list(attacks), list(dict.fromkeys(cell.point for cell in cells))
    known = {*attacks, *points}
    known |= {word for point in points if point != UNDEFENDED for word in _words(point)}
    for cell in cells:
        values = {path: value for path, value in cell.grid.items() if not _undefended(path, value)}
        known |= {*map(format_grid_value, values.values())}
        known |= {path for path in cell.grid if path.partition(".")[0] not in KINDS}
    for name in names:
        if name not in known:
            raise unknown_name("name of this study", name, known - {""})
    for what, old in (("attacks", attacks), ("points", points)):
        new = [_name_of(one, names) if what == "points" else names.get(one, one) for one in old]
        if twice := next((one for one in new if new.count(one) > 1), None):
            raise InputError(f"two {what} of this study would be called '{twice}'")


def rename_cells(cells: Sequence[CellState], names: Names) -> list[CellState]:
    """The runs of a study under other names.

    Args:
        cells: of the study.
        names: old -> new.

    Returns:
        Copies; the folders of the runs keep their names.
    """
    return [
        replace(
            cell,
            point=_name_of(cell.point, names),
            grid=dict(_option(path, value, names) for path, value in cell.grid.items()),
            not_run={names.get(n, n): why for n, why in cell.not_run.items()},
            choices={names.get(n, n): value for n, value in cell.choices.items()},
            under_attack=tuple(names.get(n, n) for n in cell.under_attack),
        )
        for cell in cells
    ]


def rename_table(table: pd.DataFrame, names: Names) -> pd.DataFrame:
    """The table of a study under other names.

    Args:
        table: of the study.
        names: old -> new.

    Returns:
        A copy.
    """
    columns: dict[str, Any] = {n: table[n].replace(dict(names)) for n in OF_ATTACKS}
    points = {point: _name_of(point, names) for point in table["point"].unique()}
    return table.assign(**columns, point=table["point"].map(points))


def _name_of(point: str, names: Names) -> str:
    """A point by its own name, else with the names of what it is made of."""
    if point in names or not names:
        return names.get(point, point)
    longest_first = sorted(names, key=len, reverse=True)
    any_name = "|".join(map(re.escape, longest_first))
    return re.sub(rf"(?<![^\s=,])(?:{any_name})(?![^\s=,])", lambda match: names[match[0]], point)


def _words(point: str) -> list[str]:
    return re.findall(r"[^\s=,]+", point)


def _option(path: str, value: Any, names: Names) -> tuple[str, Any]:
    """An option that varies, and its value."""
    text = format_grid_value(value)
    called = _name_of(text, names) if isinstance(value, Mapping | str) else names.get(text, text)
    value = value if called == text or _undefended(path, value) else called
    return path if path.partition(".")[0] in KINDS else names.get(path, path), value


def _undefended(path: str, value: Any) -> bool:
    """Whether it is that nobody defends itself, which the view of defences looks for."""
    return path in KINDS and value in (None, NONE)
