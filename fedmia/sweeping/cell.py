"""A run of a sweep in a process of its own: `python -m fedmia.sweeping.cell CONFIG FOLDER`.

The same as `python -m fedmia.simulate`, but that it ends when the sweep does, by kill -9 too.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Thread

from fedmia.simulate import begun, main


def end_with_the_sweep() -> None:
    """Kill this process and what it started as soon as its standard input ends.

    The sweep holds the other end and writes nothing. The process leads a group of its own.
    """
    os.read(0, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    Thread(target=end_with_the_sweep, daemon=True).start()
    config, folder = sys.argv[1:]
    anew = ["--config", config, "--out", folder]
    sys.exit(main([*(["--resume", folder] if begun(Path(folder)) else anew), "--quiet"]))
