"""Classes of a Python session by their name alone, as a reader of the report knows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from fedmia.options import session
from fedmia.records import RunScores

Value = TypeVar("Value")
AS_WRITTEN = ("config", "timing")  # the settings keep the hash, by which they can be repeated


def shorten_names(run: RunScores) -> RunScores:
    """The scores with `MyAttack` in place of `python:MyAttack@3f2a`.

    Args:
        run: scores by the names that the settings have.

    Returns:
        The same scores; where two classes share a name, both keep the long one.
    """
    long = {name for name in _names(run) if session.is_session_name(name)}
    if not long:
        return run
    short = [session.short_name(name) for name in long]
    names = {n: session.short_name(n) for n in long if short.count(session.short_name(n)) == 1}
    fields = [f.name for f in dataclasses.fields(run) if f.name not in AS_WRITTEN]
    return dataclasses.replace(run, **{f: _rename(getattr(run, f), names) for f in fields})


def _names(run: RunScores) -> Iterator[str]:
    """Names of attacks in the scores."""
    yield from (attack.name for attack in run.attacks)
    yield from (inference.name for inference in run.inferences if hasattr(inference, "name"))
    yield from (*run.not_run, *run.failed)


def _rename(value: Value, names: Mapping[str, str]) -> Value:
    """A value with other names in every text and key of it; arrays are not copied."""
    result: Any = value
    if isinstance(value, str):
        for long, short in names.items():
            result = result.replace(long, short)
    elif isinstance(value, np.ndarray) or value is None:
        pass
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {
            f.name: _rename(getattr(value, f.name), names)
            for f in dataclasses.fields(value)
            if f.init
        }
        result = dataclasses.replace(value, **changed)
    elif isinstance(value, Mapping):
        result = type(value)({_rename(k, names): _rename(v, names) for k, v in value.items()})  # type: ignore[call-arg]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        result = type(value)(*(_rename(one, names) for one in value))
    elif isinstance(value, list | tuple):
        result = type(value)(_rename(one, names) for one in value)
    return result  # type: ignore[no-any-return]
