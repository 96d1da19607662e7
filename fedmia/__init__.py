"""fedmia: federated self-supervised training under membership-inference attacks.

`fedmia.run_simulation`, `fedmia.audit_encoder`, `fedmia.run_study` and `fedmia.open_run` are the
way in from Python, `fedmia --help` from a terminal. Importing this package imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from pathlib import Path as _Path
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from fedmia.api import audit_embeddings as audit_embeddings
    from fedmia.api import audit_encoder as audit_encoder
    from fedmia.api import audit_federation as audit_federation
    from fedmia.api import open_run as open_run
    from fedmia.api import rank_suspects as rank_suspects
    from fedmia.api import run_simulation as run_simulation
    from fedmia.api import run_study as run_study
    from fedmia.api import view as view
    from fedmia.runs import Run as Run
    from fedmia.settings.errors import InputError as InputError
    from fedmia.study.opening import open_study as open_study
    from fedmia.study.result import StudyResult as StudyResult

__version__ = "0.1.0"
# Public name -> the module that it is imported from when it is first used.
_PUBLIC = {
    "InputError": "fedmia.settings.errors",
    "Run": "fedmia.runs",
    "StudyResult": "fedmia.study.result",
    "audit_embeddings": "fedmia.api",
    "audit_encoder": "fedmia.api",
    "audit_federation": "fedmia.api",
    "open_run": "fedmia.api",
    "rank_suspects": "fedmia.api",
    "open_study": "fedmia.study.opening",
    "run_simulation": "fedmia.api",
    "run_study": "fedmia.api",
    "view": "fedmia.api",
}
__all__ = sorted(_PUBLIC)  # type: ignore[misc]


def __getattr__(name: str) -> _Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fedmia' has no attribute '{name}'")
    return getattr(_import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})


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
