"""Where images come from, and how their pixels are read: the same options in every command."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from fedmia.data.base import Dataset, Request
from fedmia.data.decoding import CROP, PAD
from fedmia.settings import Options, option
from fedmia.settings.choices import PluginChoice, Values
from fedmia.settings.dataset_names import split_dataset
from fedmia.settings.fields import options_of

GENERATED = ("digits", "synthetic")  # sources of no file, of which the default trains on


@dataclass(frozen=True)
class Pixels(Options):
    """Where the files of images lie, and how their pixels are read.

    Attributes:
        dir: folder of the data sources' files.
        size: pixels a side; None: the images' own, of an audit the encoder's.
        mean: mean of each channel, pixels in [0, 1]; None: likewise.
        std: standard deviation of each channel; None: likewise.
        pixel_range: the pixel values that become 0 and 255.
        fit: way of images that are not square.
    """

    dir: str | None = option(None, "folder of the data source's files", hole="FOLDER")
    size: int | None = option(
        None, "pixels a side to resize to (none: the images' own, of an audit the encoder's)", ge=2
    )
    mean: tuple[float, ...] | None = option(
        None, "mean of each channel, in [0, 1] (none: the source's own, of an audit the encoder's)",
        ge=0, le=1, of_pixels=True,
    )  # fmt: skip
    std: tuple[float, ...] | None = option(
        None, "standard deviation of each channel (none: likewise)", gt=0
    )
    skip_unreadable: bool = option(
        False, "leave out images that cannot be decoded; the report counts them"
    )
    pixel_range: tuple[float, ...] | None = option(
        None,
        "LOW,HIGH: values that become black and white in every image alike, as 0,65535 of 16 bits "
        "(none: images of 8 bits, or floats from 0 to 1)",
        omitted=True,
    )
    fit: str = option(
        CROP,
        "images that are not square: crop them to their middle square, or pad them with black",
        choices=(CROP, PAD),
        omitted=True,
    )


@dataclass(frozen=True)
class Data(Pixels):
    """The data source and its pixels.

    Attributes:
        options: options of the data source itself, by name.
        choice: the source's plugin with them, built once; no option.
    """

    name: str = option("digits", "data source, with its path: parquet:PATH", hole="NAME[:PATH]")
    size: int | None = option(
        None, "pixels a side to resize to (none: the images' own, of an audit the encoder's)", ge=8
    )
    options: Values = options_of("name", "dataset", flat=True)
    choice: PluginChoice | None = field(default=None, compare=False, repr=False)

    @classmethod
    def complete(cls, **values: Any) -> Self:
        """Build of the values that are given; every option of the source is written out."""
        incomplete = cls(**values)
        choice = PluginChoice(incomplete.plugin, incomplete.options).complete("dataset")
        return replace(incomplete, options=choice.options, choice=choice)

    @property
    def plugin(self) -> str:
        """Name of the data source's plugin, without the path."""
        return split_dataset(self.name)[0]

    def source(self) -> Dataset:
        """The data source, built once."""
        choice = self.choice or PluginChoice(self.plugin, self.options)
        built: Dataset = choice.plugin("dataset")
        return built

    def request(self, seed: int) -> Request:
        """What the run asks of the source."""
        place = Path(self.dir) if self.dir is not None else None
        path = split_dataset(self.name)[1]
        return Request(path, place, self.size, seed, pixel_range=self.pixel_range, fit=self.fit)

    def fill_views(self, ssl: PluginChoice) -> PluginChoice:
        """The method with the source's options of views where its own are not given."""
        views = {k: v for k, v in vars(self.source().views).items() if k in ssl.options}
        own = {k: v for k, v in ssl.options.items() if v is not None}
        return ssl.with_options("ssl", {**ssl.options, **views, **own})
