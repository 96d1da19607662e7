"""The forms of a field: what each says of itself is what flags reach."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from fedmia.config.fields import mapping
from fedmia.config.flag_layout import flag_layout
from fedmia.config.forms import Settings, field_forms
from fedmia.config.tree import from_tree, merge, to_tree
from fedmia.options.errors import InputError, opt, prefix_errors
from fedmia.options.option import option, options_of


@dataclass(frozen=True)
class Small(Settings):
    """Settings with a plugin that an option names."""

    method: str = option("moco", "method")
    method_options: Any = options_of("method", "ssl")
    own: Any = mapping("attack")
    hidden: Any = field(default=None)


def test_options_of_a_named_plugin__are_read_where_it_is_named() -> None:
    assert list(field_forms(Small)) == ["method", "method_options", "own"]
    assert flag_layout(Small).place("method.queue") == ("method_options", "queue")
    assert flag_layout(Small).place("own.partcrop.views") == ("own", "partcrop", "views")
    tree = {"method": "mocov2", "method_options": {"queue": 64}}
    settings = from_tree(Small, tree)
    assert settings.method_options == {"queue": 64} and to_tree(settings) == tree
    with pytest.raises(InputError, match="has no 'quue'; did you mean 'queue'"):
        from_tree(Small, {"method": "moco", "method_options": {"quue": 64}})


def test_merge__another_plugin_drops_the_options_of_the_one_before() -> None:
    lower = {"method": "mocov2", "method_options": {"queue": 64}}
    merged = merge(Small, lower, {"method": "moco"}, lambda tree: ())
    assert merged == {"method": "moco", "method_options": {}}
    assert merge(Small, lower, {"own": {}}, lambda tree: ()) == {**lower, "own": {}}


def test_prefixed__says_where_an_error_is_and_keeps_its_options() -> None:
    with pytest.raises(InputError) as caught, prefix_errors(opt("grid", "x")):
        raise InputError(f"{opt('seed', 3)} is bad")
    assert str(caught.value) == "grid x: seed 3 is bad"
    with pytest.raises(InputError, match="^plain$"), prefix_errors(""):
        raise InputError("plain")
