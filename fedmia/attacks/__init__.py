"""Membership attacks, one or a family a file: `from fedmia.attacks import LpLA, Known`.

A class is imported when it is asked for, from the file whose name it begins with (`EncoderMIV` is
in `encodermi.py`). A file added to the package is found without a list to extend; the one below is
for type checkers. To use attacks on a torch module and on images in memory, see `fedmia.api`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmia.attacks.all_for_one import AllForOne as AllForOne
    from fedmia.attacks.ascent import Ascent as Ascent
    from fedmia.attacks.ascent import AscentAlgorithm1 as AscentAlgorithm1
    from fedmia.attacks.ascent_climb import AscentClimb as AscentClimb
    from fedmia.attacks.ascent_static import AscentStatic as AscentStatic
    from fedmia.attacks.base import ActiveAttack as ActiveAttack
    from fedmia.attacks.base import Attack as Attack
    from fedmia.attacks.base import DatasetAttack as DatasetAttack
    from fedmia.attacks.base import Known as Known
    from fedmia.attacks.base import NotFitted as NotFitted
    from fedmia.attacks.baseline import BaselineA as BaselineA
    from fedmia.attacks.baseline import BaselineD as BaselineD
    from fedmia.attacks.baseline import BaselineE as BaselineE
    from fedmia.attacks.baseline_b import BaselineB as BaselineB
    from fedmia.attacks.baseline_c import BaselineC as BaselineC
    from fedmia.attacks.bavaria import BaVarIA as BaVarIA
    from fedmia.attacks.combined import Combined as Combined
    from fedmia.attacks.dataset_inference import DatasetInference as DatasetInference
    from fedmia.attacks.dov4mm import DOV4MM as DOV4MM
    from fedmia.attacks.encodermi import EncoderMIS as EncoderMIS
    from fedmia.attacks.encodermi import EncoderMIT as EncoderMIT
    from fedmia.attacks.encodermi import EncoderMIV as EncoderMIV
    from fedmia.attacks.fe_mi import FeMI as FeMI
    from fedmia.attacks.grad_norm import GradNorm as GradNorm
    from fedmia.attacks.internal import Internal as Internal
    from fedmia.attacks.lira import LiRA as LiRA
    from fedmia.attacks.lira import LiRARounds as LiRARounds
    from fedmia.attacks.loss_slope import LossSlope as LossSlope
    from fedmia.attacks.lpla import LpLA as LpLA
    from fedmia.attacks.partcrop import PartCrop as PartCrop
    from fedmia.attacks.partcrop import PartCropCosine as PartCropCosine
    from fedmia.attacks.partcrop import PartCropEnergy as PartCropEnergy
    from fedmia.attacks.partcrop import PartCropLogistic as PartCropLogistic
    from fedmia.attacks.partcrop import PartCropV2 as PartCropV2
    from fedmia.attacks.rmia import RMIA as RMIA
    from fedmia.attacks.rmia import RMIARounds as RMIARounds
    from fedmia.attacks.sd_mi import SDMI as SDMI
    from fedmia.attacks.semi import SeMIRounds as SeMIRounds
    from fedmia.attacks.similarity import Similarity as Similarity
    from fedmia.attacks.sslmem import SSLMem as SSLMem
    from fedmia.attacks.stacking import Stacking as Stacking
    from fedmia.attacks.stacking import StackingRounds as StackingRounds
    from fedmia.attacks.stacking import StackingWhite as StackingWhite
    from fedmia.attacks.supervised_mi import SupervisedMI as SupervisedMI
    from fedmia.attacks.variance_only import VarianceOnly as VarianceOnly

_CONTRACT = ("ActiveAttack", "Attack", "DatasetAttack", "Known", "NotFitted")  # of base.py


def _lookup(name: str) -> Any:
    files = [m.name for m in pkgutil.iter_modules(__path__)]
    files = [file for file in files if not file.startswith("_") and file != "base"]
    if name == "__all__":
        # Kept, for tools that look a listed name up in the module's dictionary.
        globals().update(_classes("base", *files))
        return sorted(_classes("base", *files))
    # Modules and what Python itself asks for; importing every attack would not help either.
    if name.startswith("_") or name in (*files, "base"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    likely = [file for file in files if name.lower().startswith(file.replace("_", ""))]
    for some in (["base"] if name in _CONTRACT else likely, files):
        if name in (classes := _classes(*some)):
            return classes[name]
    from fedmia.settings.errors import suggest_nearest

    hint = suggest_nearest(name, _classes("base", *files))
    raise AttributeError(f"module {__name__!r} has no attack {name!r}{hint}")


def _classes(*files: str) -> dict[str, type]:
    """The public attacks that modules define, and what `base` does, by name."""
    base, classes = importlib.import_module(f"{__name__}.base"), dict[str, type]()
    for file in files:
        module = importlib.import_module(f"{__name__}.{file}")
        for name, value in vars(module).items():
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and (name in _CONTRACT or issubclass(value, base.Attack)):
                classes[name] = value
    return {n: cls for n, cls in classes.items() if not n.startswith("_")}


def __dir__() -> list[str]:
    return sorted({*globals(), *_lookup("__all__")})


if not TYPE_CHECKING:  # or a checker would take every name for known
    __getattr__ = _lookup
