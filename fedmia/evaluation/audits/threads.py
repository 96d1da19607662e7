"""The threads of an audit: as asked for, as recorded in its folder, or as a busy machine allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedmia.runtime.load import fewer_threads
from fedmia.settings.commands.audit import Audit
from fedmia.settings.tree import flatten
from fedmia.storage.runfolder import RunFolder


def settle_threads(audit: Audit, out: Path | None, say: Callable[[str], None]) -> Audit:
    """Fix the number of threads before anything is computed, since sums depend on it.

    The number goes into config.yaml, so that a repetition or a continuation uses the same one.

    Args:
        out: folder of results, which may hold the beginning of this audit.
        say: takes a line for the user.

    Returns:
        The settings with the threads; 0 still stands for all cores.
    """
    if audit.machine.threads or audit.machine.device.startswith("cuda"):
        return audit
    if out is not None and (begun := RunFolder(out)).has_settings():
        threads = flatten(Audit, begun.facts()).get("machine.threads", 0)
        if isinstance(threads, int) and threads:
            say(f"{threads} threads, as this audit began with")
            return with_threads(audit, threads)
        return audit
    chosen = fewer_threads()
    if chosen is None:
        return audit
    say(chosen[1])
    return with_threads(audit, chosen[0])


def with_threads(audit: Audit, threads: int) -> Audit:
    """The audit on so many threads."""
    return replace(audit, machine=replace(audit.machine, threads=threads))
