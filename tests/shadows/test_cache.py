"""The cache: found by content, reused, never used when damaged; shadows that the user brings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedmia.settings.errors import InputError
from fedmia.shadows.provided import load_shadows, read_settings
from fedmia.shadows.train import TrainedShadow, TrainingStopped

from .conftest import make_plan, make_target, same, train


@pytest.fixture(scope="session")
def filled(pool: Tensor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the two shadows of `make_plan()`; to be copied before it is touched."""
    root = tmp_path_factory.mktemp("filled")
    train(make_plan(), pool, cache=root)
    return root


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "cache"))


def never() -> bool:
    raise AssertionError("a step was trained")


def folder_of(cache: Path, index: int) -> Path:
    about = {f: json.loads((f / "about.json").read_text()) for f in cache.iterdir()}
    (folder,) = (f for f, description in about.items() if description["index"] == index)
    return folder


def test_cache__a_hit_trains_nothing(plain: list[TrainedShadow], pool: Tensor, cache: Path) -> None:
    messages: list[str] = []
    counted: list[tuple[int, int]] = []
    shadows = train(make_plan(), pool.flip(0), cache=cache, stop=never, say=messages.append,
                  progress=lambda *at: counted.append(at))  # fmt: skip
    assert same(shadows, plain)  # whatever the images' order
    assert "2 of 2 shadow encoders found in the cache" in messages
    assert counted == [(4, 4)]
    assert same(train(make_plan(count=3), pool, cache=cache)[:2], plain)
    assert len(list(cache.iterdir())) == 3


@pytest.mark.parametrize(
    "more", [{"epochs": 3}, {"train": {"lr": 0.01}}, {"train": {"batch_size": 5}}, {"seed": 1},
             {"images": 10}, {"knowledge": ("algorithm",)}, {"knowledge": ("architecture",)},
             {"train": {"precision": "bfloat16"}}, {}],
)  # fmt: skip
def test_cache__another_training_is_another_key(
    pool: Tensor, filled: Path, more: dict[str, Any]
) -> None:
    """Or, where no option differs, a bit of an image."""
    images = pool.clone()
    images[0, 0, 0, 0] ^= not more
    with pytest.raises(AssertionError, match="a step was trained"):
        train(make_plan(**more), images, cache=filled, stop=never)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)


def forge(file: Path) -> None:
    save_file({n: t for n, t in load_file(file).items() if n != "seal"}, file)


@pytest.mark.parametrize("damage", [cut, flip_a_bit, forge])
def test_cache__a_damaged_encoder_is_trained_again(
    plain: list[TrainedShadow], pool: Tensor, cache: Path, damage: Callable[[Path], None]
) -> None:
    folder, messages = folder_of(cache, 1), []
    damage(folder / "encoder.safetensors")
    assert same(train(make_plan(), pool, cache=cache, say=messages.append), plain)
    (damaged,) = (line for line in messages if "damaged" in line)
    assert "shadow-1: encoder.safetensors" in damaged
    assert "1 of 2 shadow encoders found in the cache" in messages
    assert same(train(make_plan(), pool, cache=cache, stop=never), plain)


def test_cache__another_shadows_file_is_not_taken(
    plain: list[TrainedShadow], pool: Tensor, cache: Path
) -> None:
    files = [folder_of(cache, i) / "encoder.safetensors" for i in (0, 1)]
    shutil.copy(files[0], files[1])
    assert same(train(make_plan(), pool, cache=cache), plain)


@pytest.mark.parametrize("damage", [flip_a_bit, forge])
def test_cache__damaged_progress_is_not_resumed(
    plain: list[TrainedShadow], pool: Tensor, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    answers = iter([False] * 4 + [True])
    with pytest.raises(TrainingStopped):
        train(make_plan(count=1), pool, cache=tmp_path, stop=lambda: next(answers))
    (file,) = tmp_path.rglob("progress.safetensors")
    damage(file)
    messages: list[str] = []
    assert same(train(make_plan(count=1), pool, cache=tmp_path, say=messages.append), plain[:1])
    assert [line for line in messages if "damaged" in line and "progress" in line]


@pytest.mark.parametrize("name", ["about.json", "images.npz"])
def test_cache__what_stands_beside_is_written_again(pool: Tensor, cache: Path, name: str) -> None:
    file = folder_of(cache, 0) / name
    file.write_text("{")
    train(make_plan(), pool, cache=cache, stop=never)
    assert len(load_shadows(cache)) == 2


def test_load_shadows__what_was_trained(plain: list[TrainedShadow], cache: Path) -> None:
    assert same(load_shadows(cache), plain)
    folder = folder_of(cache, 1)
    assert same(load_shadows(folder), plain[1:])
    folder.rename(cache / "a name of the user's own")
    assert same(load_shadows(cache), plain)


def test_load_shadows__stand_ins_stay_marked(pool: Tensor, tmp_path: Path) -> None:
    plan = make_plan(count=1, epochs=1, knowledge=(), ssl="simclr")
    trained = train(plan, pool, cache=tmp_path)
    shadows = load_shadows(tmp_path)
    (settings,) = read_settings(tmp_path)
    assert same(shadows, trained)
    assert not settings.known_algorithm and settings.ssl[0] == "simclr"
    (tmp_path / "other").mkdir()
    assert read_settings(tmp_path) == []  # one of them cannot be read


def swap_images(file: Path) -> None:
    with np.load(file) as archive:
        np.savez(file, members=archive["nonmembers"], nonmembers=archive["members"])


def age(file: Path) -> None:
    file.write_text(file.read_text().replace('"format": 1', '"format": 99'))


@pytest.mark.parametrize(
    ("file", "break_it", "said"),
    [
        ("encoder.safetensors", flip_a_bit, "encoder.safetensors in .* is damaged"),
        ("encoder.safetensors", Path.unlink, "unfinished, it holds no enc"),
        ("images.npz", cut, "images.npz in .* is damaged"),
        ("images.npz", Path.unlink, "images.npz in .* is damaged"),
        ("images.npz", swap_images, "images.npz in .* is damaged"),
        ("about.json", cut, "about.json cannot be read"),
        ("about.json", Path.unlink, "holds no about.json"),
        ("about.json", age, "format 99, this version reads 1"),
    ],
)
def test_load_shadows__refuses_a_broken_one(
    cache: Path, file: str, break_it: Callable[[Path], None], said: str
) -> None:
    break_it(folder_of(cache, 0) / file)
    with pytest.raises(InputError, match=said):
        load_shadows(cache)


def test_load_shadows__refuses_what_is_no_folder_of_shadows_of_one_shape(
    pool: Tensor, cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        load_shadows(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no about.json, nor folders that do"):
        load_shadows(tmp_path / "empty")
    small = torch.nn.functional.avg_pool2d(pool.float(), 2).to(torch.uint8)
    train(make_plan(count=1, epochs=1), small, cache=cache, target=make_target(size=4))
    with pytest.raises(InputError, match="mixes images of shapes"):
        load_shadows(cache)
