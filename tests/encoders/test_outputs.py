"""What an encoder's outputs mean, and how often a size or a normalisation is given: by hand."""

from __future__ import annotations

import pytest
import torch

from fedmia.encoders._outputs import is_map, read_outputs
from fedmia.encoders.base import IMAGENET, PLAIN, LoadOptions, channel_constants
from fedmia.options.errors import InputError

VECTOR, OTHER = torch.rand(2, 4), torch.rand(2, 5)
SMALL, LARGE = torch.rand(2, 6, 2, 2), torch.rand(2, 7, 3, 3)
TOKENS, SQUARE, ODD = torch.rand(2, 5, 8), torch.rand(2, 4, 8), torch.rand(2, 7, 8)


def test_read_outputs__vectors_then_maps_then_tokens() -> None:
    vector, grid = read_outputs({"a": [LARGE, SMALL], "b": (VECTOR, OTHER)}, "x")
    assert torch.equal(vector, VECTOR) and grid is SMALL
    assert read_outputs((torch.arange(3), TOKENS, VECTOR), "x")[1] is None
    assert torch.equal(read_outputs(torch.ones(2, 4, 1, 1), "x")[0], torch.ones(2, 4))
    vector, grid = read_outputs([LARGE, SMALL], "x")
    assert torch.equal(vector, SMALL.mean(dim=(2, 3))) and grid is SMALL
    vector, grid = read_outputs(TOKENS, "x")
    assert torch.equal(vector, TOKENS[:, 0]) and grid is not None
    assert torch.equal(grid[:, :, 1, 0], TOKENS[:, 3])  # the third patch of two by two
    nine = torch.rand(2, 10, 8)
    grid = read_outputs(nine, "x")[1]
    assert grid is not None and torch.equal(grid[:, :, 2, 1], nine[:, 8])
    vector, grid = read_outputs(SQUARE, "x")
    assert torch.equal(vector, SQUARE.mean(dim=1)) and grid is not None
    assert torch.equal(grid[:, :, 0, 1], SQUARE[:, 1])
    vector, grid = read_outputs(ODD, "x")
    assert torch.equal(vector, ODD.mean(dim=1)) and grid is None
    single = torch.rand(2, 1, 8)
    assert torch.equal(read_outputs(single, "x")[0], single[:, 0])
    with pytest.raises(InputError, match="no float tensor"):
        read_outputs({"a": torch.arange(4), "b": None}, "x")


def test_is_map__of_more_than_one_place_and_square() -> None:
    assert is_map(SMALL) and is_map(LARGE) and not is_map(VECTOR) and not is_map(TOKENS)
    assert not is_map(torch.rand(1, 2, 1, 1)) and not is_map(torch.rand(1, 2, 2, 3))


def test_constants__usual_ones_are_noted_and_one_value_is_of_every_channel() -> None:
    notes: list[str] = []
    assert LoadOptions().channel_constants(3, None, notes) == IMAGENET and "ImageNet's" in notes[0]
    assert LoadOptions().channel_constants(1, None, notes) == PLAIN and "mean 0.5" in notes[1]
    assert LoadOptions(mean=(0.1,)).channel_constants(2, None, notes) == ((0.1,) * 2, PLAIN[1] * 2)
    assert len(notes) == 3
    assert LoadOptions(mean=(0.1,), std=(2.0,)).channel_constants(2, None, notes) == (
        (0.1,) * 2,
        (2.0,) * 2,
    )
    assert len(notes) == 3  # nothing is left open
    for options, message in (
        (LoadOptions(mean=(0.1, 0.2)), "2 values for images of 3 channels"),
        (LoadOptions(std=(0.1, 0.2)), "2 values for images of 3 channels"),
        (LoadOptions(std=(0.1, 0.0, 0.3)), "must be > 0, got 0"),
    ):
        with pytest.raises(InputError, match=message):
            options.channel_constants(3, IMAGENET, [])
    assert channel_constants(None) is None and channel_constants(0.5) == (0.5,)
    assert channel_constants([0.5, 1]) == (0.5, 1.0)
