"""Classes of a Python session by their name alone, as a reader of the report knows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from fedmia.records import Evaluation
from fedmia.settings import session


def shorten_names(run: Evaluation) -> Evaluation:
    """The scores with `MyAttack` in place of `python:MyAttack@3f2a`.

    Args:
        run: scores by the names that the settings have.

    Returns:
        The same scores; where two classes share a name, both keep the long one. The settings keep
        the hash, by which they can be repeated.
    """
    long = {name for name in _names(run) if session.is_session_name(name)}
    if not long:
        return run
    short = [session.short_name(name) for name in long]
    names = {n: session.short_name(n) for n in long if short.count(session.short_name(n)) == 1}
    renamed = _rename(run, names)
    return dataclasses.replace(renamed, config=run.config, timing=run.timing)


def _names(run: Evaluation) -> Iterator[str]:
    """Names of attacks in the scores."""
    yield from (attack.name for attack in run.attacks)
    yield from (inference.attack for inference in run.inferences)
    yield from (*run.not_run, *run.failed)


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    """A value with other names in every text and key of it; arrays are not copied."""
    if isinstance(value, str):
        for long, short in names.items():
            value = value.replace(long, short)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return dataclasses.replace(
            value, **{f.name: _rename(getattr(value, f.name), names) for f in fields}
        )
    elif isinstance(value, Mapping):
        return {_rename(k, names): _rename(v, names) for k, v in value.items()}
    elif isinstance(value, list | tuple):
        return type(value)(_rename(one, names) for one in value)
    return value
