"""Shadow encoders on disk, found by what they were trained from; nothing damaged is ever used.

`<cache>/<key>/` holds one shadow:

- `about.json`: architecture, method, training options, seed, and a digest of the images. The key
  is its SHA-256, so a folder answers to one training alone.
- `images.npz`: `members` and `nonmembers`, uint8 (N, C, H, W) each.
- `encoder.safetensors`: `shared.*` (encoder), `local.*` (key encoder, queue ..) and `seal`, the
  SHA-256 of the key and of all tensors. Written last: where it is, the shadow is finished.
- `progress.safetensors`: while in training, the same with `optimizer.*`, `epoch` and `memory`, the
  defences' own as JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from fedmia.data.images import ByteArray
from fedmia.shadows.plan import ShadowSettings
from fedmia.ssl.base import State
from fedmia.storage.durable import make_folder, replacing
from fedmia.untrusted.arrays import open_npz
from fedmia.untrusted.tensors import read_safetensors
from fedmia.untrusted.text import read_json

FORMAT = 1
ABOUT, IMAGES, ENCODER = "about.json", "images.npz", "encoder.safetensors"
PROGRESS = "progress.safetensors"


class DamagedShadowError(Exception):
    """A file that is cut short, altered, or another shadow's."""


def describe_shadow(
    settings: ShadowSettings, index: int, images: str, device: torch.device
) -> dict[str, Any]:
    """All that decides the bits of a shadow, as JSON holds it.

    Args:
        settings: what every shadow of the plan is built from.
        index: number of the shadow, from 0.
        images: `content_digest` of its members and non-members.
        device: a GPU sums in another order than a CPU, so its shadows are others.

    Returns:
        the description, whose digest is the key of the cache.
    """
    plain = asdict(settings) | {
        "format": FORMAT, "index": index, "images": images, "device": device.type,
    }  # fmt: skip
    if not settings.defense:  # as shadows were described before they could have one
        del plain["defense"]
    return json.loads(json.dumps(plain))


def key_of(description: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of a shadow's description."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


class ShadowFolder:
    """One shadow's folder.

    Args:
        path: the folder; made when something is written.
        description: of `describe_shadow`.
    """

    def __init__(self, path: Path, description: Mapping[str, Any]) -> None:
        self.path = path
        self.description = description
        self.key = key_of(description)

    def finish(self, tensors: State, members: ByteArray, nonmembers: ByteArray) -> None:
        """Write the finished shadow, its `tensors` and images, and drop its progress."""
        self.describe(members, nonmembers)
        self.write(ENCODER, tensors)
        (self.path / PROGRESS).unlink(missing_ok=True)

    def describe(self, members: ByteArray, nonmembers: ByteArray) -> None:
        """Write `about.json` and `images.npz`, unless they stand there already.

        Args:
            members: uint8 (M, C, H, W), that the shadow trains on.
            nonmembers: uint8 (N, C, H, W), that it does not.
        """
        make_folder(self.path)
        try:
            images = read_images(self.path)
            same = all(map(np.array_equal, images, (members, nonmembers)))
            same &= read_json(self.path / ABOUT) == self.description
        except (DamagedShadowError, OSError, ValueError):
            same = False
        if not same:
            paths = self.path / IMAGES, self.path / ABOUT
            with replacing(*paths, shared=True) as (archive, about), archive.open("wb") as out:
                np.savez(out, members=members, nonmembers=nonmembers)
                about.write_text(json.dumps(self.description, indent=2, sort_keys=True) + "\n")

    def write(self, name: str, tensors: State) -> None:
        """Write a file with its seal.

        Args:
            name: ENCODER or PROGRESS.
            tensors: what the file holds, by name, on any device.
        """
        make_folder(self.path)
        cpu_tensors = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
        # Two runs may train the same shadow at once.
        with replacing(self.path / name, shared=True) as (file,):
            save_file(cpu_tensors | {"seal": seal(self.key, cpu_tensors)}, file)

    def read(self, name: str) -> State | None:
        """What `write` wrote to the file `name`, None where there is none.

        Raises:
            DamagedShadowError: the file is not what was written.
        """
        if not (self.path / name).exists():
            return None
        try:
            tensors = read_safetensors(self.path / name)[0]
        except (OSError, ValueError) as error:
            raise DamagedShadowError(name) from error
        stored_seal = tensors.pop("seal", None)
        if stored_seal is None or not torch.equal(stored_seal, seal(self.key, tensors)):
            raise DamagedShadowError(name)
        return tensors


def read_images(path: Path) -> tuple[ByteArray, ByteArray]:
    """Members and non-members of the shadow in folder `path`.

    Raises:
        DamagedShadowError: the file is missing, cut short or not two arrays of uint8 images.
    """
    try:
        with open_npz(IMAGES, path / IMAGES) as archive:
            arrays = archive["members"], archive["nonmembers"]
    except Exception as error:  # a damaged zip file raises whatever its parts raise
        raise DamagedShadowError(IMAGES) from error
    if any(x.dtype != np.uint8 or x.ndim != 4 for x in arrays):
        raise DamagedShadowError(IMAGES)
    return arrays


def seal(key: str, tensors: State) -> Tensor:
    """SHA-256 of a key and of named tensors.

    Args:
        key: of the shadow's description.
        tensors: on the CPU, contiguous.

    Returns:
        uint8 (32,).
    """
    whole = hashlib.sha256(key.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        whole.update(f"\x1f{name}\x1f{tensor.dtype}\x1f{tuple(tensor.shape)}\x1f".encode())
        whole.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return torch.frombuffer(bytearray(whole.digest()), dtype=torch.uint8)
