"""What a data source is: options in, one ImageSet out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from fedmia.data.arrays import Range
from fedmia.data.decoding import CROP
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet
from fedmia.settings import Options


@dataclass(frozen=True)
class AugmentLimits:
    """How far an augmentation of these images may go before it shows something else.

    Attributes:
        crop_min: least share of the area that a view shows, in (0, 1].
        flip: probability of a horizontal flip.
        jitter: factor on the method's colour jitter.
    """

    crop_min: float = 0.2
    flip: float = 0.5
    jitter: float = 1.0


@dataclass(frozen=True)
class Request:
    """What the run asks of any data source.

    Attributes:
        path: the text after the colon in `parquet:PATH`, or None.
        data_dir: folder given with `--data-dir`, or None.
        size: pixels a side to resize to, or None for the images' own size.
        seed: the run's root seed (only `synthetic` draws from it).
        columns: what else to hand over of each image (its hospital, its patient): the option
            that asks, and the column that it names (empty: the one that the source finds).
        pixel_range: the values that become 0 and 255; None: as of `arrays.scale_values`.
        side: of an audit, `members` or `nonmembers`; None: of a run, whose images have no side.
        fit: way to a square, as of `decoding.to_square`.
    """

    path: str | None
    data_dir: Path | None
    size: int | None
    seed: int
    columns: Mapping[str, str] = field(default_factory=dict)
    pixel_range: Range = None
    side: str | None = None
    fit: str = CROP


class Dataset(Options, ABC):
    """A source of labelled images. Subclasses are frozen dataclasses of options.

    Attributes:
        columns: what `Request.columns` name there; empty: it has none, and gets no such request.
        finds_columns: whether it finds a column that `Request.columns` leaves open.
        uniform: whether its images are known to have one size, and 8 bits.
    """

    takes_path: ClassVar[bool] = False
    uniform: ClassVar[bool] = False
    columns: ClassVar[str] = ""
    finds_columns: ClassVar[bool] = False
    # Per-channel constants of the normalisation, in [0, 1]; the run's --mean, --std override them.
    mean: ClassVar[tuple[float, ...]] = (0.5,)
    std: ClassVar[tuple[float, ...]] = (0.25,)
    # What the method's view options are where they are not given; the default is MoCo's.
    views: ClassVar[AugmentLimits] = AugmentLimits()

    def encoded(self, request: Request) -> EncodedSet | None:
        """The images not yet decoded, where the source keeps them so, else None.

        Raises:
            InputError: the source is missing, empty or cannot be read.
        """
        return None

    def implies(self, request: Request, absent: Collection[str]) -> dict[str, str]:
        """Options of an audit that the source of its members answers by itself.

        Args:
            request: of the members.
            absent: of `nonmembers`, `groups`, `federation.owners` those that the user leaves open.

        Returns:
            Path -> value, of those that it answers.

        Raises:
            InputError: `nonmembers` is open, and the source cannot be read.
        """
        return {}

    @abstractmethod
    def load(self, request: Request) -> ImageSet:
        """All images of the source, square, at the requested size, with the columns asked for.

        Raises:
            InputError: the source is missing, empty or cannot be read, or lacks a column.
        """


class FileDataset(Dataset):
    """A source of encoded images."""

    @abstractmethod
    def encoded(self, request: Request) -> EncodedSet: ...

    def load(self, request: Request) -> ImageSet:
        return self.encoded(request).all()
