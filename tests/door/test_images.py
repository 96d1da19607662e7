"""Every form of images in memory gives the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
)

from fedmia import audit_encoder, view
from fedmia.settings.errors import InputError

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 3, 5, 5), dtype=np.uint8)
FLOATS = IMAGES.astype(np.float32) / 255


def read(value: Any) -> np.ndarray:
    """The pixels of images in memory, as an attacker who holds them has them."""
    encoder = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return view(encoder, size=8, channels=3, held=value).held.numpy()  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("form", ["array", "tensor"])
def test_floats_are_rounded_to_the_nearest_value(dtype: type, form: str) -> None:
    floats = np.array([0, 0.5, 0.999, 1, 0.2, 0.001], dtype).reshape(6, 1, 1, 1)
    images = read(floats if form == "array" else torch.from_numpy(floats))
    assert images.ravel().tolist() == [0, 128, 255, 255, 51, 0]


def test_several_sizes_are_refused() -> None:
    items = [torch.zeros(3, 5, 5), torch.zeros(3, 6, 5)]
    with pytest.raises(InputError, match="held must be images of one shape, got 3x5x5 and 3x6"):
        read(items + [torch.zeros(3, 5, 5)])


class Drawn(Dataset[torch.Tensor]):
    """Images of which each reading of some flips one in two."""

    def __init__(self, flipped: range) -> None:
        self.flipped, self.stream = flipped, np.random.default_rng(0)

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, place: int) -> torch.Tensor:
        flip = place in self.flipped and self.stream.random() < 0.5
        return torch.from_numpy(IMAGES[place]).flip(-1) if flip else torch.from_numpy(IMAGES[place])


@pytest.mark.parametrize("batch", [None, 1, 4])
def test_items_that_are_drawn_at_random_are_refused(batch: int | None) -> None:
    def form(flipped: range) -> Any:
        return DataLoader(Drawn(flipped), batch) if batch else Drawn(flipped)

    assert np.array_equal(read(form(range(0))), IMAGES)
    with pytest.raises(InputError, match="^held: item [1-5] differs when it is read again"):
        read(form(range(1, 6)))


def test_a_collation_that_draws_at_random_is_refused() -> None:
    stream = np.random.default_rng(0)
    loader = DataLoader(list(FLOATS), 2, collate_fn=lambda batch: np.stack(batch) * stream.random())
    with pytest.raises(InputError, match="^held: item 0 differs"):
        read(loader)


@pytest.mark.parametrize(
    ("side", "option"), [("members", "groups"), ("others", "groups"), ("members", "owners")]
)
def test_a_loader_that_shuffles_is_refused_where_places_count(side: str, option: str) -> None:
    data = TensorDataset(torch.arange(60, dtype=torch.uint8).reshape(60, 1, 1, 1))
    batches = BatchSampler(RandomSampler(data), 4, False)
    value = {"groups": (range(60), range(60)), "owners": np.zeros(60, int)}[option]
    for shuffled in (DataLoader(data, 4, shuffle=True), DataLoader(data, batch_sampler=batches)):
        sides = {"members": data, "others": data, side: shuffled}
        with pytest.raises(InputError, match=f"^{side}: a DataLoader that shuffles .* {option}"):
            audit_encoder(nn.Identity(), **sides, **{option: value})


class Stream(IterableDataset[Any]):
    """Items in turn; it knows how many."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "stream": Stream,
    "generator": iter,
    "loader of a stream": lambda items: DataLoader(Stream(items), batch_size=None),
    "loader of a list": lambda items: DataLoader(items, batch_size=None),  # type: ignore[arg-type]
    "unpacked": lambda items: DataLoader(items, collate_fn=lambda batch: batch[0]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("last", [False, True])
def test_an_image_of_an_iterable_is_one(form: str, last: bool) -> None:
    pixels = list(IMAGES.transpose(0, 2, 3, 1) if last else IMAGES)
    assert np.array_equal(read(FORMS[form](pixels)), IMAGES)
    assert np.array_equal(read(FORMS[form](list(zip(pixels, "aabbab", strict=True)))), IMAGES)


def test_batches_of_an_iterable() -> None:
    gray = torch.from_numpy(IMAGES[:, 0])
    for batches in (DataLoader(gray, 3), iter([gray]), DataLoader(gray, 1), iter([gray[:, None]])):  # type: ignore[arg-type]
        assert np.array_equal(read(batches), IMAGES[:, :1])
    more = torch.cat([gray, gray[:1]])
    with pytest.raises(InputError, match=r"^held: item 1 of shape \(3, 5, 5\) beside others"):
        read(iter([more[:4], more[4:]]))


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (np.zeros((3, 0, 5), np.uint8), "has images without pixels"),
        (np.full((3, 5, 5), 7.0), "floats from 0 to 1"),
        (np.zeros((3, 5, 4), np.uint8), r"must be images of one shape, .*\(item 2\)"),
        ("text", "must be images"),
    ],
)
def test_list__names_the_item_that_is_no_image(odd: Any, why: str) -> None:
    with pytest.raises(InputError, match=f"^held.*{why}") as error:
        read([*np.zeros((2, 3, 5, 5), np.uint8), odd])
    assert "item 2" in str(error.value)
