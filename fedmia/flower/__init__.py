"""fedmia as a Flower app (`flwr run .`), and `record`, which records anybody's.

Flower imports `server.py` and `client.py`, as pyproject.toml says. Start with `server.py`, one run;
`node.py` is one client's process, `private.py` the run on images that never leave their node.
For apps of others: `record.py`, `with record(grid, folder) as grid:`; `watch.py`, which stops a
federation that leaks too much (`serve.py`: on images of the nodes); `ascend.py`, an attacker among
its clients.
"""

from fedmia.flower.ascend import ascend
from fedmia.flower.record import RecordingGrid, record, roster
from fedmia.flower.serve import serve
from fedmia.flower.watch import Watch

__all__ = ["RecordingGrid", "Watch", "ascend", "record", "roster", "serve"]
