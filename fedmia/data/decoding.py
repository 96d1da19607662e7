"""Images of any format and shape into one uint8 array of squares: decoded, cropped, resized."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from fedmia.data.arrays import Range, scale_values
from fedmia.data.images import ByteArray, IntArray
from fedmia.data.scans import is_scan, read_scan
from fedmia.records.note import Note
from fedmia.runtime.cores import count_cores
from fedmia.settings.errors import IncompleteError, InputError, opt, prefix_errors
from fedmia.untrusted.filetype import name_misfit
from fedmia.untrusted.pictures import open_picture, refuse_bombs

LARGE = 1 << 24  # pixels of an image that is decoded alone, so that few of them take memory
GREY = ("1", "L", "LA", "La")
COLOUR = ("RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB")
DEEP = "16-bit"


class ByteSource(Protocol):
    """Where an encoded image lies: a `Path`, or a place in a file of many."""

    def read_bytes(self) -> bytes: ...


Encoded = tuple[str, bytes | ByteSource]
CROP, PAD = "crop", "pad"  # ways of an image that is not square to a square
CHUNK = 64  # images that are decoded at a time, where none is kept
MOST_PADDED = 1 << 26  # pixels of a padded square
MOST_NAMED = 5  # unreadable images that an error names


class Losses(NamedTuple):
    """What an image lost on its way to a square of bytes.

    Attributes:
        mode: as `lossy_mode` says it.
        cut: share of its area that is not read, 0: none; it lies beside the square.
        pages: its file holds more than one picture.
        padded: share of the square that is black beside the whole image, 0: none.
        dicom: as of `read_scan`; None: of another format.
    """

    mode: str
    cut: float
    pages: bool
    padded: float = 0.0
    dicom: tuple[str, ...] | None = None


class UnreadableError(InputError):
    """Bytes that no decoder of images takes.

    Args:
        text: the whole error, which names the image.

    Attributes:
        why: the reason, of the first image where there are several.
    """

    def __init__(self, text: str, why: str) -> None:
        super().__init__(text)
        self.why = why

    def way_out(self, flag: str = "") -> IncompleteError:
        """The error with the option that leaves such images out, under the flag of the source."""
        where = f"{flag}: " if flag else ""
        lack = f"{where}{self}; {opt('data.skip_unreadable')} leaves them out"
        return IncompleteError([lack], {"data.skip_unreadable": True})


class ImageDecoder:
    """Decodes images into one array, each in its place; those not asked for stay black.

    Args:
        name: the data source, for errors.
        count: how many images there are.
        size: pixels a side to crop and resize to, or None if all have one square shape.
        pixel_range: the values that become 0 and 255; None: as of `scale_values`.
        fit: as of `to_square`.
    """

    def __init__(
        self, name: str, count: int, size: int | None, pixel_range: Range = None, fit: str = CROP
    ) -> None:
        self.name = name
        self.size = size
        self.fit = fit
        self._range = pixel_range
        self._count = count
        self._losses: dict[int, Losses] = {}
        self._large = Lock()
        self._colour = False
        self._pixels: ByteArray | None = None

    def add(self, batch: Sequence[Encoded], places: IntArray) -> None:
        """Decode images, each for its place.

        Args:
            batch: what to call each image, and its bytes or where they lie.
            places: (len(batch),) of the images in the array, each in 0..count - 1.

        Raises:
            UnreadableError: an image cannot be read; it names the first.
            InputError: values out of the range, or an image that is not square, or differs in size
                from the first, where no size was given.
        """
        workers = min(8, count_cores())
        with refuse_bombs(), ThreadPoolExecutor(workers) as pool:
            decoded = pool.map(self._try, batch)
            for place, (where, _), result in zip(places, batch, decoded, strict=True):
                if isinstance(result, UnreadableError):
                    raise result
                pixels, losses = result
                self._keep(where, pixels, int(place))
                self._colour |= len(pixels) == 3
                self._losses[int(place)] = losses

    def unreadable(self, files: Sequence[Encoded]) -> list[int]:
        """Places of the files that cannot be decoded. Their pixels are not kept.

        Args:
            files: what to call each image, and its bytes or where they lie.

        Raises:
            InputError: an image's values are out of the range.
        """
        bad: list[int] = []
        workers = min(8, count_cores())
        with refuse_bombs(), ThreadPoolExecutor(workers) as pool:
            for first in range(0, len(files), CHUNK):  # so that few results wait for their turn
                results = pool.map(self._try, files[first : first + CHUNK])
                bad += [first + i for i, r in enumerate(results) if isinstance(r, Exception)]
        return bad

    def images(self) -> ByteArray:
        """Of all places, uint8 (N, C, S, S): one channel if every image is grey, else three."""
        if self._pixels is None:
            raise InputError(f"{self.name}: no images")
        return self._pixels if self._colour else np.ascontiguousarray(self._pixels[:, :1])

    def notes(self) -> list[Note]:
        """What was converted, cropped or left out, of the images that were decoded."""
        return conversion_notes(self.name, self._losses.values(), self._range)

    def _try(self, item: Encoded) -> tuple[ByteArray, Losses] | UnreadableError:
        try:
            return self._decode(item)
        except UnreadableError as error:
            return error

    def _decode(self, item: Encoded) -> tuple[ByteArray, Losses]:
        where, source = item
        encoded = b""
        try:
            encoded = source if isinstance(source, bytes) else source.read_bytes()
            if is_scan(encoded):
                with self._large if len(encoded) > 2 * LARGE else nullcontext():
                    values, done = read_scan(encoded, f"{self.name}: {where}", self._range)
                    image = Image.fromarray(values)
                    cut, padded = find_margins(image.size, self.size, self.fit)
                    return self._square(where, image), Losses("", cut, False, padded, done)
            with open_picture(encoded) as opened:
                alone = self._large if math.prod(opened.size) > LARGE else nullcontext()
                losses = find_losses(opened, self.size, self.fit)
                with alone:
                    ImageOps.exif_transpose(opened, in_place=True)  # no copy, of large ones
                    image = to_bytes(opened, losses.mode, f"{self.name}: {where}", self._range)
                    return self._square(where, image), losses
        except InputError:
            raise
        # Pillow's decoders raise many kinds of errors on broken bytes; each means the same here.
        except Exception as error:
            text = why_unreadable(error, encoded)
            whole = f"{self.name}: {where}: cannot decode the image: {text}"
            raise UnreadableError(whole, text) from None

    def _square(self, where: str, image: Image.Image) -> ByteArray:
        """(C, S, S), or the image's own shape where no size is given."""
        if self.size is not None:
            with prefix_errors(f"{self.name}: {where}"):
                image = to_square(image, self.size, self.fit)
        pixels = np.asarray(image)
        return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)

    def _keep(self, where: str, pixels: ByteArray, place: int) -> None:
        _, height, width = pixels.shape
        if self._pixels is None:
            if height != width:
                raise InputError(
                    f"{self.name}: {where}: {height}x{width} pixels are not square; give "
                    f"{opt('data.size')} to crop and resize it"
                )
            # Three channels until the end, for a colour image may follow grey ones.
            try:
                self._pixels = np.zeros((self._count, 3, height, width), np.uint8)
            except MemoryError:
                raise InputError(
                    f"{self.name}: {where}: no memory for {self._count} images of {height}x{width} "
                    f"pixels; give {opt('data.size')} to crop and resize them"
                ) from None
        side = self._pixels.shape[2]
        if (height, width) != (side, side):
            raise InputError(
                f"{self.name}: {where}: {height}x{width} pixels, the first has {side}x{side}: "
                f"images differ in size; give {opt('data.size')} to crop and resize them"
            )
        self._pixels[place] = pixels


def why_unreadable(error: Exception, head: bytes) -> str:
    """Why an image cannot be read.

    Args:
        error: of the reader.
        head: first bytes of the file.

    Returns:
        The reason, in one line; of a file that is something else, what it is.
    """
    if isinstance(error, UnidentifiedImageError) and (misfit := name_misfit(head)):
        return f"it is {misfit}"
    text = " ".join(str(error).split()) or type(error).__name__
    return text.partition(" <_io.BytesIO")[0]  # an address, not the file


def lossy_mode(image: Image.Image) -> str:
    """The mode of an image that loses something as 8-bit gray or RGB, to be called before its
    pixels are read; empty: it loses nothing."""
    deep = any(";16" in str(tile[3]) for tile in getattr(image, "tile", ()))
    if deep and image.mode in GREY + COLOUR:  # of these Pillow reads the high bytes alone
        return f"{DEEP} {image.mode}"
    return image.mode if image.mode in (*GREY[2:], *COLOUR[1:]) else ""


def find_losses(image: Image.Image, size: int | None, fit: str = CROP) -> Losses:
    """What an image loses that is to have `size` pixels a side, before its pixels are read."""
    cut, padded = find_margins(image.size, size, fit)
    return Losses(lossy_mode(image), cut, getattr(image, "is_animated", False), padded)


def find_margins(sides: tuple[int, int], size: int | None, fit: str) -> tuple[float, float]:
    """Share of an image's area that lies beside its square, and share of its square that lies
    beside the image: one of them is 0, and both where no size is given."""
    beside = 1 - min(sides) / max(sides) if size is not None else 0.0
    return (0.0, beside) if fit == PAD else (beside, 0.0)


def to_bytes(image: Image.Image, lossy: str, where: str, pixel_range: Range = None) -> Image.Image:
    """An image in 8-bit gray or RGB.

    Args:
        image: of any mode.
        lossy: what `lossy_mode` said of it.
        where: what errors call it.
        pixel_range: as of `scale_values`.

    Returns:
        The image.

    Raises:
        InputError: what `scale_values` refuses, or a range for an image that was cut to 8 bits.
    """
    if pixel_range is not None and lossy.startswith(DEEP):
        raise InputError(
            f"{where} is {lossy}, of which only the high 8 bits are read, as 0 to 255: "
            f"{opt('data.pixel_range')} does not apply to it; leave the range out, or give arrays "
            "(npz:PATH)"
        )
    if image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info:
        raise InputError(
            f"{where} is CMYK without Adobe's marker, so no reader knows whether ink is 0 or 255: "
            "convert it to RGB"
        )
    if image.mode in GREY + COLOUR:
        kind = "L" if image.mode in GREY else "RGB"
        image = image if image.mode == kind else image.convert(kind)
        if pixel_range is None:
            return image
    return Image.fromarray(scale_values(np.asarray(image), where, pixel_range))


def conversion_notes(where: str, losses: Iterable[Losses], pixel_range: Range = None) -> list[Note]:
    """Notes that count the images that were converted, or not read as a whole.

    Args:
        where: what the notes call the source.
        losses: of each image.
        pixel_range: as of `scale_values`.

    Returns:
        The notes, or none.
    """
    losses = [*losses]
    counts = Counter(one.mode for one in losses if one.mode)
    notes = [Note("images-converted", {"where": where, "modes": counts})] if counts else []
    if dicom := [one.dicom for one in losses if one.dicom is not None]:
        done = Counter(word for words in dicom for word in words)
        limits = None if pixel_range is None else "{:g} to {:g}".format(*pixel_range)
        notes.append(
            Note(
                "dicom-read",
                {"where": where, "files": len(dicom), "done": done, "limits": limits},
            )
        )
    if pages := sum(one.pages for one in losses):
        notes.append(Note("several-pictures", {"where": where, "files": pages}))
    if cut := [one.cut for one in losses if one.cut]:
        notes.append(Note("images-cropped", {"where": where, "images": len(cut), "most": max(cut)}))
    if black := [one.padded for one in losses if one.padded]:
        notes.append(
            Note("images-padded", {"where": where, "images": len(black), "most": max(black)})
        )
    return notes


def array_crop_notes(
    where: str, images: ByteArray, size: int | None, fit: str = CROP
) -> tuple[Note, ...]:
    """The note that images (N, C, H, W) are cropped or padded in `resize_all`, or none."""
    cut, padded = find_margins(images.shape[2:], size, fit)
    return tuple(conversion_notes(where, [Losses("", cut, False, padded)] * len(images)))


def list_unreadable(names: Sequence[str]) -> str:
    """How many images these are, and the first of them: `3 images (a.png, b.png, c.png)`."""
    more = ", .." if len(names) > MOST_NAMED else ""
    plural = "" if len(names) == 1 else "s"
    return f"{len(names)} image{plural} ({', '.join(names[:MOST_NAMED])}{more})"


def to_square(image: Image.Image, size: int, fit: str = CROP) -> Image.Image:
    """An image as a square, resized to `size` pixels a side.

    Pillow's bilinear filter, which widens its support when it shrinks (antialias).

    Args:
        image: of any shape, 8 bits.
        size: at least 1.
        fit: `crop`: its largest central square; `pad`: the whole image in the middle of a black
            square, of which an odd pixel more lies below or to the right.

    Returns:
        The image, of `size` x `size` pixels.

    Raises:
        InputError: a padded square of more pixels than an image may have.
    """
    width, height = image.size
    side = max(width, height) if fit == PAD else min(width, height)
    margin, top = (int((length - side) / 2) for length in image.size)
    if width != height:
        if side**2 > MOST_PADDED and fit == PAD:
            raise InputError(
                f"{width}x{height} pixels, a padded square of which has more than {MOST_PADDED:,}; "
                f"{opt('data.fit', CROP)} crops it"
            )
        # Pillow fills what lies outside of an image with black.
        image = image.crop((margin, top, margin + side, top + side))
    return image if side == size else image.resize((size, size), Image.Resampling.BILINEAR)


def resize_all(
    images: ByteArray,
    size: int | None,
    name: str,
    pixel_range: Range = None,
    fit: str = CROP,
) -> ByteArray:
    """Images of one shape, (N, C, H, W) uint8, as (N, C, size, size).

    Args:
        images: C in {1, 3}.
        size: pixels a side, or None to keep the images' own.
        name: the data source, for the error.
        pixel_range: as of `scale_values`.
        fit: as of `to_square`.

    Returns:
        The array, uint8, square.

    Raises:
        InputError: the images are not square and no size is given, values out of the range, or what
            `to_square` refuses.
    """
    images = scale_values(images, name, pixel_range)
    count, channels, height, width = images.shape
    if size is None and height != width:
        raise InputError(
            f"{name}: images of {height}x{width} pixels are not square; give "
            f"{opt('data.size')} to crop and resize them"
        )
    if size is None or size == height == width:
        return images
    out = np.empty((count, channels, size, size), np.uint8)
    for i, image in enumerate(images):
        grey = channels == 1
        pixels = image[0] if grey else np.ascontiguousarray(image.transpose(1, 2, 0))
        with prefix_errors(name):
            resized = np.asarray(to_square(Image.fromarray(pixels), size, fit))
        out[i] = resized[None] if grey else resized.transpose(2, 0, 1)
    return out
