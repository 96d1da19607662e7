"""fedmia: federated self-supervised training under membership-inference attacks.

`python -m fedmia.simulate --help` is the way in. Importing this package imports nothing heavy.
"""

from __future__ import annotations

from importlib.util import find_spec as _find_spec
from pathlib import Path as _Path

__version__ = "0.1.0"


def _check_neighbours(root: _Path) -> None:
    """Raise ImportError unless the packages that ship with fedmia resolve inside `root`.

    Their names are common: another `clients` in the working directory would be imported in place
    of ours, and fail much later with a message that explains nothing.
    """
    for name in ("strategies", "clients"):
        spec = _find_spec(name)
        places = [] if spec is None else [*(spec.submodule_search_locations or []), spec.origin]
        location = str(places[0]) if places else None
        if location is None or _Path(location).resolve() != root / name:
            raise ImportError(
                f"fedmia needs its own package '{name}' in {root}, but Python finds "
                f"{location or 'none'}; rename that one, or start Python from another folder"
            )


_check_neighbours(_Path(__file__).resolve().parents[1])
