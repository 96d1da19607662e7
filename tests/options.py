"""The options of a plugin, read off its dataclass and off nothing of ours."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints


def option_fields(cls: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """Field and type of each option of a dataclass, in their order."""
    kinds = get_type_hints(cls)
    own = [one for one in dataclasses.fields(cls) if "help" in one.metadata]
    return [(one, kinds[one.name]) for one in own]
