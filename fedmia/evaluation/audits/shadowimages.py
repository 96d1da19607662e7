"""The images that an audit's shadows are trained on, and those that must not be among them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch

from fedmia.data.cast import ATTACKED, Cast
from fedmia.data.classes import Labels
from fedmia.data.decoding import resize_all
from fedmia.data.images import ImageSet, IntArray, digests
from fedmia.evaluation.audits.sources import load_images
from fedmia.settings.commands.audit import Audit
from fedmia.settings.errors import InputError, opt


class ShadowImages:
    """Images to train shadows on: --shadow-data, else non-members without another role.

    Args:
        audit: the audit's settings.
        audit_split: the images in their roles.
        say: takes a line for the user.
    """

    def __init__(self, audit: Audit, audit_split: Cast, say: Callable[[str], None]) -> None:
        self.audit, self.audit_split, self.say = audit, audit_split, say

    def ground(self) -> tuple[torch.Tensor, torch.Tensor, IntArray | None]:
        """The shadows' images and those under attack; uint8 (N, C, S, S) of the shadows' size; and
        the subject of each, where they belong to any (those of --shadow-data are their own).

        Raises:
            InputError: --shadow-data cannot be read, or has other channels.
        """
        size, attacked = self.audit.plan().size, self.audit_split.attacked()
        pool = (
            self.audit_split.pixels("spare").numpy()
            if self.audit.shadow.data is None
            else self._data.images
        )
        if pool.shape[1] != attacked.shape[1]:
            raise InputError(
                f"{opt('shadow.data')}: images of {pool.shape[1:]}, the audited ones are "
                f"{tuple(attacked.shape[1:])}"
            )
        # Resized alike, so that an image under attack is known again among the shadows' own.
        own, theirs = (resize_all(x, size, "shadow images") for x in (pool, attacked.numpy()))
        of, subjects = self.audit_split.subject, None
        if (first := of("spare")) is not None:
            first = -1 - np.arange(len(own)) if self.audit.shadow.data else first
            subjects = np.concatenate([first, *(of(role) for role in ATTACKED)])
        return torch.from_numpy(own), torch.from_numpy(theirs), subjects

    def digest(self) -> str:
        """Digest of --shadow-data.

        Raises:
            InputError: it cannot be read.
        """
        images = self._data
        return hashlib.sha256(
            b"".join(digests(images.images)) + images.class_labels().tobytes()
        ).hexdigest()

    @cached_property
    def labels(self) -> Labels:
        """Classes of the audit's images, and of --shadow-data."""
        if self.audit.shadow.data is None:
            return self.audit_split.labels
        own = torch.from_numpy(self._data.images), self._data.class_labels()
        return self.audit_split.labels | Labels([own])

    @cached_property
    def _data(self) -> ImageSet:
        """--shadow-data, of the shadows' own size."""
        audited = self.audit_split.sides[0].size
        images = load_images(self.audit, "shadow.data", self.audit.plan().size or audited)
        if images.size == audited:
            return images
        # Resized from what it was, an image under attack is told at the size of those alone.
        under_attack = set(digests(self.audit_split.attacked().numpy()))
        theirs = digests(load_images(self.audit, "shadow.data", audited).images)
        usable = np.array(
            [i for i, name in enumerate(theirs) if name not in under_attack], np.int64
        )
        if len(usable) < len(images):
            overlap = len(images) - len(usable)
            self.say(f"shadow images: {overlap} left out, as they are among those under attack")
        return images.take(usable)
