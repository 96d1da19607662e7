"""A run of a sweep in a process of its own: `python -m fedmia.sweeping.cell CONFIG FOLDER`.

The same as `python -m fedmia.simulate`, but that it ends when the sweep does, by kill -9 too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fedmia.simulate import begun, main
from fedmia.sweeping.processes import end_with_the_sweep

if __name__ == "__main__":
    end_with_the_sweep()
    config, folder = sys.argv[1:]
    anew = ["--config", config, "--out", folder]
    # What lies there is of the sweep's own settings, whose plugins its user named.
    again = ["--resume", folder, "--trust-plugins"]
    sys.exit(main([*(again if begun(Path(folder)) else anew), "--quiet"]))
