"""What a call from Python leaves as it was: folders of results, Ctrl-C, environment."""

from __future__ import annotations

import os
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from threading import Event, current_thread, main_thread

from fedmia.runs import Run, open_run
from fedmia.runtime.interrupts import Interrupts
from fedmia.settings import session
from fedmia.settings.values import disk_path


@contextmanager
def results_folder(out: str | Path | None) -> Iterator[Path]:
    """The folder of results; a temporary one is removed where the call fails.

    Args:
        out: that the user named, or None.

    Yields:
        The folder.
    """
    if out is not None:
        yield Path(disk_path(out))
        return
    temporary = tempfile.mkdtemp(prefix="fedmia-")
    try:
        yield Path(temporary) / "run"
    except BaseException:
        rmtree(temporary)
        raise


def open_results(folder: Path, temporary: bool) -> Run:
    """Open the run that a call wrote.

    Args:
        folder: that `results_folder` yielded.
        temporary: whether to remove it with the run.

    Returns:
        The run.
    """
    run = open_run(folder, trust_plugins=True)
    if temporary:
        weakref.finalize(run, rmtree, folder.parent, ignore_errors=True)
    return run


@contextmanager
def interruptible(finished: str) -> Iterator[Event]:
    """Ctrl-C as on the command line, where this is the thread that it reaches.

    Args:
        finished: what is reported on after it, in words.

    Yields:
        An event that the first Ctrl-C sets.
    """
    if current_thread() is main_thread():
        with Interrupts(finished) as stop:
            yield stop
    else:
        yield Event()


@contextmanager
def session_for_children() -> Iterator[None]:
    """Let the processes of runs import what this session can, and have its classes."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", session.VARIABLE)}
    with tempfile.TemporaryDirectory(prefix="fedmia-session-") as folder:
        places = [str(Path(place or ".").resolve()) for place in sys.path]
        os.environ["PYTHONPATH"] = os.pathsep.join(places)
        if session.classes():
            file = Path(folder) / "classes.pkl"
            session.write(file)
            os.environ[session.VARIABLE] = str(file)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
