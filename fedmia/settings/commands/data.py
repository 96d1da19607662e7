"""Where images come from, and how their pixels are read: the same options in every command."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmia.data.base import Dataset, Request
from fedmia.settings.choices import PluginChoice, Values
from fedmia.settings.dataset_names import split_dataset
from fedmia.settings.options import Options, option, options_of

GENERATED = ("digits", "synthetic")  # sources of no file, of which the default trains on


def data_folder(of: str = "source's") -> Any:
    """An option: where the files of data sources lie."""
    return option(None, f"folder of the data {of} files", hole="FOLDER")


def image_size(default: str, least: int) -> Any:
    """The option of the images' size.

    Args:
        default: whose size it is where none is given, for the help text.
        least: smallest size that is allowed, in pixels a side.

    Returns:
        A dataclass field: an int, or None.
    """
    return option(None, f"pixels a side to resize to (none: {default})", ge=least)


def channel_mean(default: str) -> Any:
    """An option: mean of each channel; `default` as of `image_size`."""
    about = f"mean of each channel, in [0, 1] (none: {default})"
    return option(None, about, ge=0, le=1, of_pixels=True)


def channel_std(default: str) -> Any:
    """An option: standard deviation of each channel; `default` as of `image_size`."""
    return option(None, f"standard deviation of each channel (none: {default})", gt=0)


def pixel_range() -> Any:
    """An option: the pixel values that become 0 and 255."""
    return option(
        None,
        "LOW,HIGH: values that become black and white in every image alike, as 0,65535 of 16 bits "
        "(none: images of 8 bits, or floats from 0 to 1)",
        omitted=True,
    )


@dataclass(frozen=True)
class Data(Options):
    """The data source and its pixels.

    Attributes:
        dir: folder of the data source's files.
        size: pixels a side; None: the images' own.
        mean: mean of each channel, pixels in [0, 1]; None: the source's own.
        std: standard deviation of each channel; None: the source's own.
        pixel_range: the pixel values that become 0 and 255.
        options: options of the data source itself, by name.
    """

    name: str = option("digits", "data source, with its path: parquet:PATH", hole="NAME[:PATH]")
    dir: str | None = data_folder()
    size: int | None = image_size("the images' own", 8)
    mean: tuple[float, ...] | None = channel_mean("the source's own")
    std: tuple[float, ...] | None = channel_std("the source's own")
    skip_unreadable: bool = option(
        False, "leave out images that cannot be decoded; the report counts them"
    )
    pixel_range: tuple[float, ...] | None = pixel_range()
    options: Values = options_of("name", "dataset", flat=True)
    _source: PluginChoice = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        choice = PluginChoice(self.plugin, self.options).complete("dataset")
        object.__setattr__(self, "options", choice.options)
        object.__setattr__(self, "_source", choice)

    @property
    def plugin(self) -> str:
        """Name of the data source's plugin, without the path."""
        return split_dataset(self.name)[0]

    def source(self) -> Dataset:
        """The data source, built."""
        built: Dataset = self._source.plugin("dataset")
        return built

    def request(self, seed: int) -> Request:
        """What the run asks of the source."""
        place = Path(self.dir) if self.dir is not None else None
        path = split_dataset(self.name)[1]
        return Request(path, place, self.size, seed, pixel_range=self.pixel_range)

    def fill_views(self, ssl: PluginChoice) -> PluginChoice:
        """The method with the source's options of views where its own are not given."""
        views = {k: v for k, v in vars(self.source().views).items() if k in ssl.options}
        own = {k: v for k, v in ssl.options.items() if v is not None}
        return ssl.with_options("ssl", {**ssl.options, **views, **own})
