"""An audit of a series in a process of its own: `python -m fedmia.series.cell CONFIG FOLDER`.

The same as `python -m fedmia.audit`, but that it ends when the series does, by kill -9 too. What
lies in FOLDER of the same audit is gone on with.
"""

from __future__ import annotations

import sys

from fedmia.audit import main
from fedmia.cli.commands import AUDIT
from fedmia.cli.flags import Typed
from fedmia.sweeping.processes import end_with_the_sweep

if __name__ == "__main__":
    end_with_the_sweep()
    config, folder = sys.argv[1:]
    # Its report speaks of flags, not of a file that the series wrote.
    sys.exit(main(["--config", config, "--out", folder, "--quiet"], Typed(AUDIT, {})))
