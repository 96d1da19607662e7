"""fedmia as a Flower app (`flwr run .`), and `record`, which records anybody's.

Flower imports `server.py` and `client.py`, as pyproject.toml says. Start with `server.py`, one run;
`node.py` is one client's process, `private.py` the run on images that never leave their node.
`record.py` is for apps of others: `with record(grid, folder) as grid:`.
"""

from fedmia.flower.record import RecordingGrid, record, roster

__all__ = ["RecordingGrid", "record", "roster"]
