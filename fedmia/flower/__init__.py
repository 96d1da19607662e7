"""fedmia as a Flower app (`flwr run .`), and `record`, which records anybody's.

Flower imports `server.py` and `client.py`, as pyproject.toml says. Start with `server.py`, one run;
`node.py` is one client's process, `private.py` the run on images that never leave their node.
For apps of others: `record.py`, `with record(grid, folder) as grid:`; `ascend.py`, an attacker
among their clients, `ClientApp(mods=[ascend(..)])`.
"""

from fedmia.flower.ascend import ascend
from fedmia.flower.record import RecordingGrid, record, roster

__all__ = ["RecordingGrid", "ascend", "record", "roster"]
