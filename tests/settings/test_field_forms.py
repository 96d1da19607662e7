"""A field of settings: its paths are what flags, files and errors reach."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from fedmia.settings import option
from fedmia.settings.errors import InputError, opt, prefix_errors
from fedmia.settings.fields import Settings, options_of
from fedmia.settings.layout import layout
from fedmia.settings.tree import flatten, from_tree, merge, to_tree


@dataclass(frozen=True)
class Small(Settings):
    """Settings with a plugin that an option names."""

    method: str = option("moco", "method")
    method_options: Any = options_of("method", "ssl")
    owns: tuple[str, ...] = option((), "attacks", omitted=True)
    own: Any = options_of("owns", "attack", several=True)
    hidden: Any = field(default=None)


def test_options_of_a_named_plugin__are_read_where_it_is_named() -> None:
    flags = layout(Small).flags()
    assert [flags.find(p) for p in ("method.queue", "own.partcrop.crop-min", "hidden")] == [
        "method.queue", "own.partcrop.crop_min", None,
    ]  # fmt: skip
    tree, flat = {"method": {"name": "mocov2", "queue": 64}}, {"method": "mocov2"}
    flat["method.queue"] = 64  # type: ignore[assignment]
    assert flatten(Small, tree) == flatten(Small, flat) == flat
    settings = from_tree(Small, tree)
    assert settings.method_options == {"queue": 64} and to_tree(settings) == tree
    with pytest.raises(InputError, match="has no 'quue'; did you mean 'queue'"):
        from_tree(Small, {"method": "moco", "method.quue": 64})
    with pytest.raises(InputError, match="^method.queue is given twice"):
        from_tree(Small, {"method": {"queue": 64}, "method.queue": 64})


def test_merge__another_plugin_drops_the_options_of_the_one_before() -> None:
    lower = {"method": "mocov2", "method.queue": 64}
    assert merge(Small, lower, {"method": "moco"}) == {"method": "moco"}
    assert merge(Small, lower, {"method": "mocov2"}) == lower


def test_prefixed__says_where_an_error_is_once() -> None:
    with pytest.raises(InputError) as caught, prefix_errors("file"), prefix_errors(opt("over", 3)):
        raise InputError(f"{opt('seed', 3)} is bad")
    assert str(caught.value) == "file: over 3: seed 3 is bad"
    outer = prefix_errors("file")
    with pytest.raises(InputError, match="^file: bad$"), outer, prefix_errors("file"):
        raise InputError("bad")
