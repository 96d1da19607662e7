"""Shadow encoders that the user brings: `--shadow-encoders FOLDER`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from fedmia.data.images import digests
from fedmia.options.errors import InputError
from fedmia.shadows._one import ShadowTraining, TrainedShadow
from fedmia.shadows.cache import (
    ABOUT,
    ENCODER,
    FORMAT,
    DamagedShadowError,
    ShadowFolder,
    read_images,
)
from fedmia.shadows.draw import content_digest
from fedmia.shadows.plan import Choice, ShadowSettings
from fedmia.ssl.train import Train


def load_shadows(path: Path) -> list[TrainedShadow]:
    """Shadow encoders from a folder as the cache writes it (see `fedmia.shadows.cache`).

    Args:
        path: one shadow's folder, with `about.json`, `images.npz` and `encoder.safetensors`, or a
            folder of such folders; their names do not matter.

    Returns:
        In order of their number in the plan, then of their folder's name.

    Raises:
        InputError: no shadow there, one that is unfinished, damaged or of an unknown format, or
            shadows of images of different shapes.
    """
    if not path.is_dir():
        raise InputError(f"shadow encoders: {path} is not a folder")
    folders = _folders(path)
    if not folders:
        raise InputError(f"shadow encoders: {path} holds no {ABOUT}, nor folders that do")
    loaded = sorted((_load(f) for f in folders), key=lambda one: one[0])
    shadows = [trained for _, trained in loaded]
    shapes = sorted({tuple(t.members.shape[1:]) for t in shadows})
    if len(shapes) > 1:
        raise InputError(f"shadow encoders: {path} mixes images of shapes {shapes}")
    return shadows


def read_settings(path: Path) -> list[ShadowSettings]:
    """What the shadow encoders in `path` were built from and trained by, without loading them.

    Empty where one cannot be read: `load_shadows` says why.
    """
    try:
        return [_blueprint(json.loads((f / ABOUT).read_text())) for f in _folders(path)]
    except (KeyError, TypeError, ValueError, OSError):  # an InputError is a ValueError
        return []


def content(path: Path) -> str:
    """Digest (hex) of the shadow encoders in `path`, without loading them: of their seals.

    A seal is of the blueprint, the images and every weight; one that cannot be read counts as none.
    """
    contents = []
    for folder in _folders(path):
        try:
            with safe_open(folder / ENCODER, framework="np") as file:
                contents.append(file.get_tensor("seal").tobytes())
        except (SafetensorError, OSError):
            continue
    return hashlib.sha256(b"".join(sorted(contents))).hexdigest()


def _folders(path: Path) -> list[Path]:
    """The folders of the shadows in `path`."""
    if (path / ABOUT).exists():
        return [path]
    return sorted(f for f in path.iterdir() if f.is_dir() and not f.name.startswith("."))


def _load(path: Path) -> tuple[int, TrainedShadow]:
    """Number and shadow in folder `path`."""
    try:
        description = json.loads((path / ABOUT).read_text())
        blueprint, index = _blueprint(description), int(description["index"])
        folder = ShadowFolder(path, description)
        state = folder.read(ENCODER)
        if state is None:
            raise InputError(f"shadow encoders: {path} is unfinished, it holds no {ENCODER}")
        members, nonmembers = read_images(path)
        if content_digest(digests(members), digests(nonmembers)) != description["images"]:
            raise DamagedShadowError("images.npz")
        return index, ShadowTraining(blueprint, index, members, nonmembers, folder).finish_shadow(
            state
        )
    except FileNotFoundError:
        raise InputError(f"shadow encoders: {path} holds no {ABOUT}") from None
    except DamagedShadowError as error:
        raise InputError(f"shadow encoders: {error} in {path} is damaged") from None
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"shadow encoders: {path / ABOUT} cannot be read: {error!r}") from None


def _blueprint(description: dict[str, Any]) -> ShadowSettings:
    """The blueprint that `cache.describe_shadow` wrote down."""
    if description["format"] != FORMAT:
        raise InputError(
            f"shadow encoders of format {description['format']}, this version reads {FORMAT}"
        )
    fields = {k: description[k] for k in ShadowSettings.__dataclass_fields__ if k in description}
    for part in ("model", "ssl"):
        fields[part] = _choice(*fields[part])
    fields["defense"] = tuple(_choice(*one) for one in fields.get("defense", ()))
    fields["train"] = Train(**{k: _frozen(v) for k, v in fields["train"].items()})
    return ShadowSettings(**{k: _frozen(v) for k, v in fields.items()})


def _choice(name: str, options: dict[str, Any]) -> Choice:
    return name, {k: _frozen(v) for k, v in options.items()}


def _frozen(value: Any) -> Any:
    """Options hold tuples where JSON holds lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
