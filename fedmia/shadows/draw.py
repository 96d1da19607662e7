"""Which images each shadow trains on, and which it does not: decided by the images' content."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedmia.data.images import ByteArray, IntArray, digests
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.shadows.plan import ShadowPlan
from fedmia.statistics.subjects import nearest_end

Pixels = Tensor | NDArray[np.uint8]
DigestPositions = list[tuple[bytes, int]]  # images by digest
LEAST = 2  # members a shadow
# Members and non-members of a shadow, as indices into the pool followed by the candidates: disjoint
# in content, equal in number (within one), in the order of their digests.
ShadowDraw = tuple[IntArray, IntArray]


class ImagePool:
    """Distinct images to deal from, known by their digest; the pool holds none of the candidates.

    Args:
        pool: uint8 (N, C, H, W).
        candidates: uint8 (M, C, H, W) under attack, or None.
        subjects: (N + M,) subject of each image, such as a patient, pool first; None: they have
            none.

    Attributes:
        pool, candidates: (digest, index into the pool followed by the candidates), by digest.
        repeated: images of the pool left out because another one equals them.
        attacked: images of the pool left out because a candidate equals them.

    Raises:
        InputError: images of another type, or of different shapes.
    """

    def __init__(
        self, pool: Pixels, candidates: Pixels | None, subjects: IntArray | None = None
    ) -> None:
        own = as_bytes(pool, "shadow images")
        other = own[:0] if candidates is None else as_bytes(candidates, "images under attack")
        if len(other) and own.shape[1:] != other.shape[1:]:
            raise InputError(
                f"shadow images are {own.shape[1:]}, the images under attack {other.shape[1:]}"
            )
        pool_digests = digests(own)
        first = {d: i for i, d in reversed(list(enumerate(pool_digests)))}
        under_attack = {d: len(own) + i for i, d in enumerate(digests(other))}
        usable = {d: i for d, i in first.items() if d not in under_attack}
        self.attacked = sum(d in under_attack for d in pool_digests)
        self.repeated = len(own) - self.attacked - len(usable)
        self.pool, self.candidates = sorted(usable.items()), sorted(under_attack.items())
        self._subjects = subjects

    def draw(self, plan: ShadowPlan) -> list[ShadowDraw]:
        """Which images each shadow of the plan trains on, and which it does not.

        Neither the order of the pool nor that of the candidates plays a part, and shadow i does not
        depend on how many there are. Offline, no shadow meets a candidate. Online, shadows 2j and
        2j + 1 train on complementary halves of the candidates, so each is in exactly half of them,
        or within one shadow of it if their number is odd. A subject's images are on one side.

        Args:
            plan: says how many shadows of how many images, and the seed.

        Returns:
            the images of each shadow, in order.

        Raises:
            InputError: too few images.
        """
        candidates = self.candidates if plan.online else []
        total = len(self.pool) + len(candidates)
        images = total // 2 if plan.images is None else plan.images
        if images < LEAST or 2 * images > total:
            need = 2 * max(images, LEAST)
            raise InputError(
                f"shadow encoders need {need} distinct images that are not under attack"
                f"{' or are (online)' if plan.online else ''}, half of them as non-members; "
                f"there are {total}"
            )
        if images < len(candidates) // 2:
            raise InputError(
                f"online shadow encoders train on half of the {len(candidates)} images under "
                f"attack, so images must be at least {len(candidates) // 2}, got {images}"
            )
        return [self._draw(plan.seed, i, images, candidates) for i in range(plan.count)]

    def _draw(self, seed: int, index: int, images: int, candidates: DigestPositions) -> ShadowDraw:
        """The images of shadow `index`; `images` is how many members it has."""
        of, order = self._subjects, rng(seed, "shadow-candidates", index // 2)
        inside, outside = _deal(candidates, of, len(candidates) // 2, len(candidates), order)
        if index % 2:
            inside, outside = outside, inside
        ins = max(0, images - len(inside))
        both = ins + max(0, images - len(outside))
        own = _deal(self.pool, of, ins, both, rng(seed, "shadow-pool", index))
        members, rest = sorted(inside + own[0]), sorted(outside + own[1])
        ours, theirs = (np.array([i for _, i in one], dtype=np.int64) for one in (members, rest))
        return ours, theirs


def _deal(
    images: DigestPositions,
    subjects: IntArray | None,
    first: int,
    both: int,
    draw: np.random.Generator,
) -> tuple[DigestPositions, DigestPositions]:
    """About `first` images in random order, and those that follow up to about `both`; no subject is
    among both, and each side has one where there are two."""
    of = np.arange(len(images))
    if subjects is not None:
        of = np.unique(subjects[[i for _, i in images]], return_inverse=True)[1]
    order = draw.permutation(len(sizes := np.bincount(of)))
    ranked = np.argsort(np.argsort(order)[of], kind="stable").tolist()
    sizes, more = sizes[order], both > first
    middle = nearest_end(sizes, first, min(first, 1), more)
    last = nearest_end(sizes, both, middle + more, 0)
    cuts = int(sizes[:middle].sum()), int(sizes[:last].sum())
    return [images[i] for i in ranked[: cuts[0]]], [images[i] for i in ranked[slice(*cuts)]]


def content_digest(members: ByteArray, nonmembers: ByteArray) -> str:
    """SHA-256 (hex) of the images of a shadow.

    Args:
        members, nonmembers: uint8 (N, C, H, W), in order.

    Returns:
        64 hexadecimal digits.
    """
    whole = hashlib.sha256(f"{len(members)}\x1f{len(nonmembers)}\x1f".encode())
    for one in (*digests(members), *digests(nonmembers)):
        whole.update(one)
    return whole.hexdigest()


def as_bytes(images: Pixels, what: str) -> ByteArray:
    """`images` as a uint8 array (N, C, H, W).

    Args:
        images: tensor or array, on any device.
        what: what the images are, for the error.

    Returns:
        the array; of an array, itself.

    Raises:
        InputError: they are something else.
    """
    array = images.cpu().numpy() if isinstance(images, Tensor) else images
    if array.dtype != np.uint8 or array.ndim != 4:
        raise InputError(f"{what} must be uint8 (N, C, H, W), got {array.dtype} {array.shape}")
    return array
