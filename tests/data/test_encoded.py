"""Images are decoded once, those with a role alone, and the roles are those of decoded images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmia.data.cast import Cast
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet
from fedmia.partitions.iid import IID
from fedmia.partitions.split import SplitOptions, decode_split, make_split
from tests.data.material import encode

PIXELS = np.random.default_rng(0).integers(0, 256, (120, 4, 4, 3), dtype=np.uint8)
LABELS = np.arange(120) % 3


@dataclass(frozen=True)
class Counted:
    """A file that notes each time that it is read."""

    content: bytes
    reads: list[bytes]

    def read_bytes(self) -> bytes:
        self.reads.append(self.content)
        return self.content


def stored(files: Sequence[bytes | Counted]) -> EncodedSet:
    named = [(f"row {i}", f) for i, f in enumerate(files)]
    return EncodedSet("files", named, LABELS[np.arange(len(files)) % 120], "files", None)


def roles(found: ImageSet | EncodedSet, nonmembers: int = 10) -> Cast:
    sizes = SplitOptions(members=20, known=4, nonmembers=nonmembers, test=8)
    return make_split(found, sizes, IID(), 4, 1, True, 0)


def test_decoded__roles_are_those_of_the_images_and_no_other_is_decoded() -> None:
    """Each file is read once for its name, and those with a role once more."""
    files = [encode(x) for x in PIXELS]
    whole = stored(files).all()
    assert np.array_equal(whole.images, PIXELS.transpose(0, 3, 1, 2))
    want, reads = roles(whole), list[bytes]()
    got = decode_split(stored([Counted(file, reads) for file in files]), roles)
    data = got.data
    assert np.array_equal(got.used, want.used) and got.counts() == want.counts()
    assert np.array_equal(data.images[got.used], whole.images[got.used])
    assert Counter(reads) == Counter([*files, *(files[i] for i in got.used)])
    unused = np.setdiff1d(np.arange(120), got.used)
    assert len(unused) and not data.images[unused].any()


def test_decoded__copies_that_are_encoded_otherwise_have_one_role() -> None:
    copies = [encode(x, compress_level=0) for x in PIXELS[:80]]
    files = [encode(x) for x in PIXELS[:80]] + copies
    assert len(set(files)) == 160
    got = decode_split(stored(files), roles)
    data = got.data
    shown = {x.tobytes() for x in data.images[got.used]}
    assert len(shown) == len(got.used)
    assert got.duplicates_removed > 0


def test_decoded__byte_equal_copies_are_found_without_decoding() -> None:
    files = [encode(x) for x in PIXELS[:80]] * 2
    assert roles(stored(files)).duplicates_removed == roles(stored(files).all()).duplicates_removed
    assert roles(stored(files)).duplicates_removed == 80
