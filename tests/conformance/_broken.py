"""What the conformance suite says of a plugin that breaks a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def broken(check: Callable[[Any], None], plugin: Any) -> str:
    """The sentence, which must be one line."""
    with pytest.raises(AssertionError) as caught:
        check(plugin)
    message = str(caught.value)
    assert "\n" not in message
    return message


def name_of(value: Any) -> str:
    """A plugin's, in the place of a whole sentence."""
    return getattr(value, "__name__", "says")
