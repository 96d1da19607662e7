"""What of an audit that was cut short may be used again, and what must be the same for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from fedmia import __version__
from fedmia.data.cast import KNOWN, SCORED, Cast
from fedmia.data.classes import Labels
from fedmia.data.images import digests
from fedmia.encoders.base import LoadedEncoder
from fedmia.encoders.memory import hash_weights
from fedmia.settings.commands.audit import Audit
from fedmia.settings.errors import InputError
from fedmia.settings.layout import Flat
from fedmia.settings.tree import flatten, to_tree
from fedmia.ssl.augment import Augment
from fedmia.storage.runfolder import RunFolder

# Another list of attacks adds to those finished, and so does a sweep; the others change no score.
MORE = ("attacks", "sweep", "show_images", "prior")


def same_audit(audit: Audit) -> Callable[[Path], bool]:
    """A test of whether a folder is of this audit, so that its results can be continued."""

    def same(folder: Path) -> bool:
        try:
            theirs = flatten(Audit, RunFolder(folder).facts())
        except InputError:
            return False
        sweeps = theirs.get("sweep"), audit.sweep
        mine = _but_for(MORE, flatten(Audit, to_tree(audit)))
        return mine == _but_for(MORE, theirs) and sweeps[0] in (None, sweeps[1])

    return same


def _but_for(paths: Sequence[str], flat: Flat) -> Flat:
    """The settings of an audit but for some paths, and for the options of attacks."""
    return {p: v for p, v in flat.items() if p not in paths and not p.startswith("attack.")}


def key(
    audit: Audit,
    released: LoadedEncoder,
    audit_split: Cast,
    augment: Augment,
    device: torch.device,
) -> str:
    """Digest of what decides all scores: weights, images, classes, views and options.

    Attacks and their shadows are not in it (`Suite.decides`).

    Args:
        released: the encoder under audit.
        audit_split: the images in their roles.
        augment: the attacker's augmentation.
        device: where tensors are computed.

    Returns:
        The digest in hexadecimal.
    """
    settings = _but_for((*MORE, "shadow.cache"), flatten(Audit, to_tree(audit)))
    settings["machine.device"] = device.type  # `auto` is another one on another machine
    about = [__version__, audit_digest(audit, released, audit_split), settings, repr(augment)]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def audit_digest(audit: Audit, released: LoadedEncoder, audit_split: Cast) -> str:
    """Digest of weights, images and their classes.

    Args:
        released: the encoder under audit.
        audit_split: the images in their roles.

    Returns:
        The digest in hexadecimal.
    """
    digest = hashlib.sha256()
    # A large .onnx keeps its weights in a second file beside it.
    for file in (Path(audit.encoder.name), Path(f"{audit.encoder.name}.data")):
        if file.is_file():
            digest.update(file.read_bytes())
    digest.update(hash_weights(released.method.encoder).encode())
    for role in (*KNOWN, *SCORED, "spare"):
        names = digests(audit_split.pixels(role).numpy())
        digest.update(b"".join(names) + _classes(audit_split.labels, names))
    for role in (*KNOWN, *SCORED):
        of = audit_split.subject(role)
        digest.update(b"" if of is None else of.tobytes())
    return digest.hexdigest()


def _classes(labels: Labels, names: list[bytes]) -> bytes:
    try:
        return labels.classes_of(names).tobytes()
    except InputError:  # their source has none
        return b""
