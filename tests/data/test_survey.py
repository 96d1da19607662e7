"""What the headers of files say before any is decoded, and all that is missing in one message."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedmia.data.base import Request
from fedmia.data.encoded import EncodedSet
from fedmia.data.folder import Folder
from fedmia.data.survey import read_headers, survey_sets
from fedmia.federation.plan import make_plan
from fedmia.settings.errors import IncompleteError, InputError
from tests.commands import fedmia
from tests.data.dicom_files import write_dicom
from tests.data.material import encode, experiment_on, write_parquet

RNG = np.random.default_rng(0)


def gray(shape: tuple[int, ...], most: int = 4096, kind: Any = np.uint16) -> np.ndarray:
    return RNG.integers(0, most, shape).astype(kind)


def npy(array: np.ndarray) -> bytes:
    np.save(buffer := io.BytesIO(), array)
    return buffer.getvalue()


def files(folder: Path, *contents: bytes, size: int | None = None, **more: Any) -> EncodedSet:
    """A folder of these files, whose bytes say what they are."""
    folder.mkdir(exist_ok=True)
    for at, content in enumerate(contents):
        (folder / f"{at:03d}.png").write_bytes(content)
    return Folder().encoded(Request(str(folder), None, size, 0, **more))


def lacks(*sets: EncodedSet, **more: Any) -> dict[str, Any]:
    """The options that a survey asks for."""
    try:
        survey_sets(dict(zip(("members", "nonmembers"), sets, strict=False)), False, **more)
    except IncompleteError as error:
        assert "\n" not in str(error)
        return error.options
    return {}


def test_survey__nothing_is_missing_of_plain_images(tmp_path: Path) -> None:
    plain = files(tmp_path, *[encode(gray((8, 8), 256, np.uint8)) for _ in range(3)])
    assert lacks(plain) == {}
    assert survey_sets({"x": plain}, False)["x"].notes == plain.notes


def test_survey__size_is_the_most_frequent_shorter_side(tmp_path: Path) -> None:
    shapes = [(8, 12), (12, 8), (9, 9), (9, 30), (8, 8)]
    odd = files(tmp_path, *[encode(gray(shape, 256, np.uint8)) for shape in shapes])
    assert lacks(odd) == {"data.size": 8}
    sized = files(tmp_path, size=4)
    assert lacks(sized) == {}
    (note,) = survey_sets({"x": sized}, False)["x"].notes
    assert note.code == "images-surveyed" and note.values["kinds"] == {"PNG": 5}
    assert "5 images of 5 sizes, 8x8 to 30x9 pixels" in note.values["sizes"]
    oblong = files(tmp_path / "one", encode(gray((9, 8), 9, np.uint8)))
    assert lacks(oblong) == {"data.size": 8}


@pytest.mark.parametrize(
    ("content", "limits"),
    [
        (lambda: encode(gray((8, 8))), (0, 4095)),
        (lambda: encode(gray((8, 8), 65536)), (0, 65535)),
        (lambda: encode(gray((8, 8), 900)), (0, 1023)),
        (lambda: npy(gray((8, 8))), (0, 4095)),
        (lambda: npy(gray((8, 8), 3000).astype(np.float32) - 1000), (-1024, 4095)),
        (lambda: npy(gray((8, 8), 256).astype(np.float64)), (0, 255)),
        (lambda: write_dicom(gray((8, 8), 10)), (0, 4095)),  # 12 bits, whatever the values are
        (lambda: write_dicom(gray((8, 8)), RescaleSlope=1, RescaleIntercept=-1024), (-1024, 4095)),
        (lambda: write_dicom(gray((8, 8)), WindowCenter=50, WindowWidth=400), (-150, 249)),
        (lambda: write_dicom(gray((8, 8)), WindowCenter=[50, 1], WindowWidth=[400, 2]),
         (-150, 249)),
    ],
)  # fmt: skip
def test_survey__proposes_a_range_of_whole_bits_or_the_files_window(
    content: Callable[[], bytes], limits: tuple[int, int], tmp_path: Path
) -> None:
    deep = files(tmp_path, *[content() for _ in range(4)])
    assert lacks(deep) == {"data.pixel_range": limits}
    assert lacks(files(tmp_path, pixel_range=(0.0, 65535.0))) == {}


def test_survey__floats_from_0_to_1_need_no_range(tmp_path: Path) -> None:
    unit = npy(RNG.random((8, 8)))
    assert lacks(files(tmp_path, unit, encode(gray((8, 8), 9, np.uint8)))) == {}
    with pytest.raises(InputError, match="no range suits both"):
        survey_sets({"x": files(tmp_path / "b", unit, encode(gray((8, 8))))}, False)


def test_survey__two_depths_are_no_matter_of_an_option(tmp_path: Path) -> None:
    """Also where each side has one of its own, which alone would tell the sides."""
    deep = files(tmp_path / "a", *[encode(gray((8, 9))) for _ in range(3)])
    plain = files(tmp_path / "b", *[encode(gray((8, 8), 256, np.uint8)) for _ in range(3)])
    with pytest.raises(InputError, match="3 images of 16 bits.* 3 images of 8 bits") as caught:
        survey_sets({"members": deep, "nonmembers": plain}, False)
    assert not isinstance(caught.value, IncompleteError) and "data.size" in str(caught.value)
    colour = encode(gray((8, 8, 3), 256, np.uint8))
    assert lacks(files(tmp_path / "c", colour), plain) == {}


@pytest.mark.parametrize(
    ("channels", "needed", "value"),
    [((1, 1), 3, "rgb"), ((3, 3), 1, "gray"), ((1, 3), 3, "rgb"), ((1, 1), 1, None),
     ((1, 3), None, None), ((1, 1), 4, None)],
)  # fmt: skip
def test_survey__channels_of_the_encoder(
    channels: tuple[int, int], needed: int | None, value: str | None, tmp_path: Path
) -> None:
    sides = [
        files(tmp_path / str(at), encode(gray((8, 8, 3)[: 2 + (one == 3)], 256, np.uint8)))
        for at, one in enumerate(channels)
    ]
    assert lacks(*sides, channels=needed) == ({} if value is None else {"data.channels": value})


def test_survey__all_at_once_with_files_that_cannot_be_read(tmp_path: Path) -> None:
    good = [encode(gray(shape)) for shape in [(8, 8), (8, 12)]]
    first = files(tmp_path / "a", *good, b"nothing", encode(gray((8, 8)))[:20])
    second = files(tmp_path / "b", *good)

    def roles() -> None:
        raise IncompleteError(["too few"], {"split.known": 2})

    expected = {"data.size": 8, "data.pixel_range": (0, 4095), "data.channels": "rgb"}
    options = lacks(first, second, channels=3, roles=roles)
    assert options == {**expected, "data.skip_unreadable": True, "split.known": 2}
    with pytest.raises(IncompleteError, match=r"members: 2 images .*too few") as caught:
        survey_sets({"members": first}, False, roles=roles)
    (line,) = caught.value.__notes__
    assert "size=8, pixel_range=(0, 4095), skip_unreadable=True, known=2" in line
    assert "data.skip_unreadable" not in lacks(second, roles=roles)
    # Alone they are left to the decoder, as not every file has a role.
    assert lacks(files(tmp_path / "c", encode(gray((8, 8), 9, np.uint8)), b"nothing")) == {}


@pytest.mark.parametrize(
    ("pixels", "depth", "channels"),
    [
        (gray((8, 8), 2, np.uint8).astype(bool), "8 bits", 1),
        (gray((8, 8), 256, np.uint8), "8 bits", 1),
        (gray((8, 8, 2), 256, np.uint8), "8 bits", 1),
        (gray((8, 8, 4), 256, np.uint8), "8 bits", 3),
        (gray((8, 8)), "16 bits", 1),
        (gray((8, 8), 99, np.int32), "32 bits", 1),
        (gray((8, 8), 9, np.float32), "floats", 1),
    ],
)
def test_survey__depth_and_channels_of_pillows_modes(
    pixels: np.ndarray, depth: str, channels: int
) -> None:
    kind = "TIFF" if depth in ("32 bits", "floats") else "PNG"
    (header,) = read_headers([("x", encode(pixels, kind))])
    assert (header.depth, header.channels, header.problem) == (depth, channels, "")


def test_survey__every_format_tells_its_size(tmp_path: Path) -> None:
    pixels = Image.fromarray(gray((8, 8, 3), 256, np.uint8))
    kinds = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
    many = files(tmp_path, *[encode(pixels, kind) for kind in kinds], encode(gray((9, 9), 9)))
    (note,) = survey_sets({"x": files(tmp_path, size=8, pixel_range=(0.0, 255.0))}, False)[
        "x"
    ].notes
    assert note.values["kinds"] == {**dict.fromkeys(kinds, 1), "PNG": 2}
    assert len(many) == 8


def test_survey__a_header_beyond_the_first_bytes_is_read_all_the_same(tmp_path: Path) -> None:
    """A large comment before the pixels of a PNG, and a TIFF whose directory lies at its end."""
    from PIL.PngImagePlugin import PngInfo

    about = PngInfo()
    about.add_text("note", RNG.bytes(150_000).hex())
    image = Image.fromarray(gray((8, 8)))
    long = [encode(image, pnginfo=about), encode(Image.fromarray(gray((300, 300))), "TIFF")]
    assert min(map(len, long)) > 1 << 16
    assert lacks(files(tmp_path, *long)) == {"data.size": 8, "data.pixel_range": (0, 4095)}


def test_simulate__says_all_before_it_decodes(tmp_path: Path) -> None:
    shapes = [(8, 8), (8, 12), (16, 12)]
    files(tmp_path, *[encode(gray(shapes[at % 3])) for at in range(60)])
    with pytest.raises(IncompleteError) as caught:
        make_plan(experiment_on(tmp_path))
    assert caught.value.options == {"data.size": 8, "data.pixel_range": (0, 4095)}
    plan = make_plan(experiment_on(tmp_path, size=8, pixel_range=[0, 4095]))
    assert {"images-surveyed", "images-cropped"} <= {note.code for note in plan.notes}


def test_parquet__is_looked_at_too(tmp_path: Path) -> None:
    images = [encode(gray((8, 8 + at % 2))) for at in range(60)]
    path = write_parquet(tmp_path / "a.parquet", images, label=[0, 1] * 30)
    with pytest.raises(IncompleteError) as caught:
        make_plan(experiment_on(path, name=f"parquet:{path}"))
    assert caught.value.options == {"data.size": 8, "data.pixel_range": (0, 4095)}


def hospital(folder: Path) -> None:
    """30 images: PNG of 16 bits in three sizes, arrays, DICOM of two interpretations."""
    folder.mkdir()
    for at in range(30):
        pixels = gray([(16, 16), (16, 20), (24, 20)][at % 3])
        photometric = "MONOCHROME1" if at % 2 else "MONOCHROME2"
        if at % 5 == 0:
            content = write_dicom(pixels, PhotometricInterpretation=photometric)
            (folder / f"{at} Röntgen.dcm").write_bytes(content)
        elif at % 5 == 1:
            np.save(folder / f"{at}.npy", pixels)
        else:
            (folder / f"{at}.png").write_bytes(encode(pixels))


def printed_line(error: str) -> list[str]:
    """The arguments of the line that an error prints last, without the program."""
    assert "Traceback" not in error and error.count("fedmia: error: ") == 1
    program, command, *arguments = shlex.split(error.splitlines()[-1])
    assert program == "fedmia" and command in ("audit", "simulate")
    return arguments


def refused_audit(folder: Path) -> list[str]:
    """The line that a refused audit of a colour encoder on a hospital's files prints."""
    for side in ("in", "out side"):
        hospital(folder / side)
    line = ["--encoder", "tests.auditing.brought:tiny", "--attacks", "similarity", "--quiet",
            "--members", f"folder:{folder}/in", "--nonmembers", f"folder:{folder}/out side",
            ]  # fmt: skip
    ran = fedmia(["audit", *line])
    assert ran.code == 2
    error = ran.err
    for option in ("data.size", "data.pixel_range", "data.channels"):
        assert error.splitlines()[-3].count(option) == 1
    arguments = printed_line(error)
    assert arguments == [*line, "--size", "16", "--pixel-range", "0,4095", "--channels", "rgb"]
    return arguments


def test_audit__one_refusal_for_both_sides_and_the_encoder(tmp_path: Path) -> None:
    refused_audit(tmp_path)


@pytest.mark.slow
def test_audit__the_printed_line_works(tmp_path: Path) -> None:
    arguments, out = refused_audit(tmp_path), tmp_path / "audit"
    assert fedmia(["audit", *arguments], out).code == 0
    report = (out / "report.json").read_text(encoding="utf-8")
    assert "6 DICOM files: 3 of MONOCHROME1 inverted, read from 0 to 4095" in report
    assert "20 images that are not square were cropped to their middle square" in report
    assert "30 images of 3 sizes, 16x16 to 20x24 pixels" in report


@pytest.mark.slow
def test_simulate__the_line_works_for_a_folder_without_labels(tmp_path: Path) -> None:
    hospital(tmp_path / "a")
    line = ["--dataset", f"folder:{tmp_path}/a", "--clients", "2", "--rounds", "1", "--quiet",
            "--split.known", "3", "--model", "smallnet", "--attacks", "similarity"]  # fmt: skip
    ran = fedmia(["simulate", *line])
    assert ran.code == 2
    arguments = printed_line(ran.err)
    expected = ["--size", "16", "--pixel-range", "0,4095", "--partition", "iid"]
    assert arguments == [*line, *expected]
    run = str(tmp_path / "run")
    assert fedmia(["simulate", *arguments, "--fit", "pad", "--out", run]).code == 0
    # An audit of the run reads the same images again.
    out = tmp_path / "audit"
    assert fedmia(f"audit --encoder {run} --attacks similarity --quiet", out).code == 0
    own, again = (
        json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))["attacks"][0]["auc"]
        for folder in (run, out)
    )
    assert own == again
