"""Shadow encoders that the user brings: `--shadow-encoders FOLDER`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from fedmia.nets.base import check_network
from fedmia.settings.errors import InputError
from fedmia.settings.options import check_type, type_hints
from fedmia.shadows._one import ShadowTraining, TrainedShadow
from fedmia.shadows.cache import (
    ABOUT,
    ENCODER,
    FORMAT,
    IMAGES,
    DamagedShadowError,
    ShadowFolder,
    read_images,
)
from fedmia.shadows.draw import content_digest
from fedmia.shadows.plan import Choice, ShadowSettings
from fedmia.ssl.train import Train
from fedmia.storage.runfolder import DAMAGE, Trust, UntrustedPluginError, refuse_untrusted
from fedmia.untrusted.tensors import read_safetensors
from fedmia.untrusted.text import read_json

LINE = 200  # characters of a reason


def load_shadows(path: Path, trust: Trust = False) -> list[TrainedShadow]:
    """Shadow encoders from a folder as the cache writes it (see `fedmia.shadows.cache`).

    Args:
        path: one shadow's folder, with `about.json`, `images.npz` and `encoder.safetensors`, or a
            folder of such folders; their names do not matter.
        trust: which plugins from outside that they name may be imported.

    Returns:
        In order of their number in the plan, then of their folder's name.

    Raises:
        InputError: no shadow there, one that is unfinished, damaged or of an unknown format, or
            shadows of images of different shapes.
        UntrustedPluginError: one names a plugin from outside that is not trusted.
    """
    if not path.is_dir():
        raise InputError(f"shadow encoders: {path} is not a folder")
    folders = _folders(path)
    if not folders:
        raise InputError(f"shadow encoders: {path} holds no {ABOUT}, nor folders that do")
    loaded = sorted((_load(f, trust) for f in folders), key=lambda one: one[0])
    shadows = [trained for _, trained in loaded]
    shapes = sorted({tuple(t.members.shape[1:]) for t in shadows})
    if len(shapes) > 1:
        raise InputError(f"shadow encoders: {path} mixes images of shapes {shapes}")
    return shadows


def read_settings(path: Path, trust: Trust = False) -> list[ShadowSettings]:
    """What the shadow encoders in `path` were built from and trained by, without loading them.

    Args:
        path: as of `load_shadows`.
        trust: which plugins from outside that they name may be imported.

    Returns:
        One for each shadow; empty where one cannot be read, or is not trusted: `load_shadows` says
        why.
    """
    try:
        return [_parse_settings(f, read_json(f / ABOUT), trust) for f in _folders(path)]
    except (*DAMAGE, OSError):  # an InputError is a ValueError
        return []


def seals_digest(path: Path) -> str:
    """Digest (hex) of the shadow encoders in `path`, without loading them: of their seals.

    A seal is of the settings, the images and every weight; one that cannot be read counts as none.
    """
    seals = []
    for folder in _folders(path):
        try:
            tensors, _ = read_safetensors(folder / ENCODER, "numpy", ["seal"])
            seals.append(tensors["seal"].tobytes())
        except (OSError, ValueError):
            continue
    return hashlib.sha256(b"".join(sorted(seals))).hexdigest()


def _folders(path: Path) -> list[Path]:
    """The folders of the shadows in `path`."""
    if (path / ABOUT).exists():
        return [path]
    return sorted(f for f in path.iterdir() if f.is_dir() and not f.name.startswith("."))


def _load(path: Path, trust: Trust) -> tuple[int, TrainedShadow]:
    """Number and shadow in folder `path`."""
    try:
        description = read_json(path / ABOUT)
        settings, index = _parse_settings(path, description, trust), int(description["index"])
        folder = ShadowFolder(path, description)
        state = folder.read(ENCODER)
        if state is None:
            raise InputError(f"unfinished, it holds no {ENCODER}")
        members, nonmembers = read_images(path)
        shape = (settings.channels, settings.size, settings.size)
        if any(images.shape[1:] != shape for images in (members, nonmembers)):
            raise InputError(f"{ABOUT} says images of {shape}, {IMAGES} holds {members.shape[1:]}")
        if not len(settings.mean) == len(settings.std) == settings.channels:
            raise InputError(
                f"{ABOUT} has no mean and std for each of {settings.channels} channels"
            )
        if content_digest(members, nonmembers) != description["images"]:
            raise DamagedShadowError("images.npz")
        length = sum(t.nbytes for t in state.values())
        check_network(ABOUT, lambda: settings.method(index, len(members)), length)
        shadow = ShadowTraining(settings, index, members, nonmembers, folder)
        return index, shadow.finish(state)
    except FileNotFoundError:
        raise InputError(f"shadow encoders: {path} holds no {ABOUT}") from None
    except DamagedShadowError as error:
        raise InputError(f"shadow encoders: {error} in {path} is damaged") from None
    except UntrustedPluginError:
        raise
    except InputError as error:
        raise InputError(f"shadow encoders: {path}: {str(error)[:LINE]}") from None
    except (*DAMAGE, OSError) as error:
        why = " ".join(str(error).split())[:LINE]
        raise InputError(
            f"shadow encoders: {path / ABOUT} cannot be read: {type(error).__name__}: {why}"
        ) from None


def _parse_settings(path: Path, description: dict[str, Any], trust: Trust) -> ShadowSettings:
    """The settings that `cache.describe_shadow` wrote down."""
    refuse_untrusted(path, description, trust)
    if description["format"] != FORMAT:
        raise InputError(f"of format {description['format']!s:.20}, this version reads {FORMAT}")
    fields = {k: description[k] for k in ShadowSettings.__dataclass_fields__ if k in description}
    for part in ("model", "ssl"):
        fields[part] = _choice(*fields[part])
    fields["defense"] = tuple(_choice(*one) for one in fields.get("defense", ()))
    fields["train"] = Train(**{k: _frozen(v) for k, v in fields["train"].items()})
    fields = {k: _frozen(v) for k, v in fields.items()}
    kinds = type_hints(ShadowSettings)
    for name, value in fields.items():
        check_type(name, value, kinds[name])
    return ShadowSettings(**fields)


def _choice(name: str, options: dict[str, Any]) -> Choice:
    return name, {k: _frozen(v) for k, v in options.items()}


def _frozen(value: Any) -> Any:
    """Options hold tuples where JSON holds lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
