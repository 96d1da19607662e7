"""What an encoder's outputs mean, and how often a size or a normalisation is given: by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fedmia.encoders._outputs import OutputReader, is_map, named_tensors
from fedmia.encoders.base import IMAGENET, PLAIN, EncoderFacts, LoadOptions
from fedmia.records.note import Note
from fedmia.report.words.notes import sentences
from fedmia.settings.errors import InputError

VECTOR, OTHER = torch.rand(2, 3), torch.rand(2, 5)
SMALL, LARGE = torch.rand(2, 6, 2, 2), torch.rand(2, 7, 3, 3)
TOKENS, SQUARE, ODD = torch.rand(2, 5, 8), torch.rand(2, 4, 8), torch.rand(2, 7, 8)


def of_x(embedding: str | None = None) -> EncoderFacts:
    return EncoderFacts("x", LoadOptions(embedding=embedding))


def read(outputs: Any, embedding: str | None = None) -> tuple[Tensor, Tensor | None]:
    return OutputReader(outputs, of_x(embedding))(outputs)


def test_reader__a_vector_then_maps_then_tokens() -> None:
    vector, grid = read({"a": [LARGE, SMALL], "b": (VECTOR, torch.arange(2))})
    assert torch.equal(vector, VECTOR) and grid is SMALL
    assert torch.equal(read(torch.ones(2, 4, 1, 1))[0], torch.ones(2, 4))
    vector, grid = read([LARGE, SMALL])
    assert torch.equal(vector, SMALL.mean(dim=(2, 3))) and grid is SMALL
    vector, grid = read(TOKENS)
    assert torch.equal(vector, TOKENS[:, 0]) and grid is not None
    assert torch.equal(grid[:, :, 1, 0], TOKENS[:, 3])  # the third patch of two by two
    nine = torch.rand(2, 10, 8)
    grid = read(nine)[1]
    assert grid is not None and torch.equal(grid[:, :, 2, 1], nine[:, 8])
    vector, grid = read(SQUARE)
    assert torch.equal(vector, SQUARE.mean(dim=1)) and grid is not None
    assert torch.equal(grid[:, :, 0, 1], SQUARE[:, 1])
    vector, grid = read(ODD)
    assert torch.equal(vector, ODD.mean(dim=1)) and grid is None
    single = torch.rand(2, 1, 8)
    assert torch.equal(read(single)[0], single[:, 0])
    with pytest.raises(InputError, match="no float tensor"):
        read({"a": torch.arange(4), "b": None})


class Named(NamedTuple):
    mask: Tensor
    embedding: Tensor


POOLED = torch.rand(2, 8)  # as wide as the tokens


@pytest.mark.parametrize(
    ("outputs", "name", "noted"),
    [
        (VECTOR, "output", False),
        ({"logits": VECTOR}, "logits", True),  # alone, and said
        ({"mask": OTHER, "last_hidden_state": TOKENS}, "last_hidden_state", True),
        ({"last_hidden_state": TOKENS, "pooler_output": POOLED}, "pooler_output", True),
        ({"pooler_output": POOLED, "image_embeds": VECTOR}, "image_embeds", True),
        (
            {"logits_per_image": OTHER, "vision": {"image_embeds": VECTOR}},
            "vision.image_embeds",
            True,
        ),
        ({"aux": OTHER, "x": VECTOR}, "x", True),
        ({"loss": torch.rand(()), "hidden_states": (TOKENS, TOKENS), "y": TOKENS}, "y", True),
        (Named(OTHER, VECTOR), "embedding", True),
        ((VECTOR, SMALL), "0", True),
        ((TOKENS, POOLED), "1", True),
    ],
)
def test_reader__by_name_then_by_shape(outputs: Any, name: str, noted: bool) -> None:
    facts = of_x()
    assert OutputReader(outputs, facts).vector == name
    assert [f"'{name}'" in note for note in sentences(facts.notes)] == [True] * noted


@pytest.mark.parametrize(
    "outputs",
    [
        (VECTOR, OTHER),
        {"b": VECTOR, "a": OTHER},
        (TOKENS, OTHER),  # a mask of patches of which the tokens lack some
        (torch.rand(2, 9), LARGE),  # a value for each place of the map
        (TOKENS, TOKENS),
        {"loss": torch.rand(()), "logits": ODD, "mask": VECTOR},
    ],
)
def test_reader__what_is_not_known_is_refused_with_its_names(outputs: Any) -> None:
    names = list(dict(named_tensors(outputs)))[-2:]
    with pytest.raises(InputError) as refused:
        OutputReader(outputs, of_x())
    assert all(f"'{name}' (B, " in str(refused.value) for name in names)
    assert "(--embedding) NAME" in str(refused.value)
    assert OutputReader(outputs, of_x(names[1])).vector == names[1]
    with pytest.raises(InputError, match="unknown output 'z'"):
        OutputReader(outputs, of_x("z"))


def test_reader__the_output_that_the_user_names() -> None:
    both = {"a": VECTOR, "b": OTHER, "map": SMALL}
    assert read(both, "b") == (OTHER, SMALL)
    vector, grid = read({"x": VECTOR, "tokens": TOKENS}, "tokens")
    assert torch.equal(vector, TOKENS[:, 0]) and grid is not None and grid.shape == (2, 8, 2, 2)
    vector, grid = read({"map": LARGE, "other": SMALL}, "map")
    assert torch.equal(vector, LARGE.mean(dim=(2, 3))) and grid is LARGE


def test_is_map__of_more_than_one_place_and_square() -> None:
    assert is_map(SMALL) and is_map(LARGE) and not is_map(VECTOR) and not is_map(TOKENS)
    assert not is_map(torch.rand(1, 2, 1, 1)) and not is_map(torch.rand(1, 2, 2, 3))


OWN = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
GIVEN = (0.7, 0.8, 0.9), (0.25, 0.35, 0.45)


@pytest.mark.parametrize(
    ("options", "channels", "own", "wanted", "notes"),
    [
        ({}, 3, None, IMAGENET, 1),
        ({}, 1, None, PLAIN, 1),
        ({"mean": 0.1}, 2, None, ((0.1,) * 2, PLAIN[1] * 2), 1),
        ({"mean": 0.1, "std": 2}, 2, None, ((0.1,) * 2, (2.0,) * 2), 0),  # nothing is left open
        # One of the two leaves the other as the encoder has it.
        ({}, 3, OWN, OWN, 0),
        ({"mean": GIVEN[0], "std": GIVEN[1]}, 3, OWN, GIVEN, 0),
        ({"mean": GIVEN[0]}, 3, OWN, (GIVEN[0], OWN[1]), 0),
        ({"std": [0.5]}, 3, OWN, (OWN[0], (0.5,) * 3), 0),
        (
            {"mean": (0.1, 0.2)},
            3,
            OWN,
            r"data.mean \(--mean\): 2 values for images of 3",
            0,
        ),
        ({"std": (0.1, 0.2)}, 3, OWN, r"data.std \(--std\): 2 values for images of 3 channels", 0),
        ({"std": (0.1, 0.0, 0.3)}, 3, OWN, "0.0, must be > 0", 0),
    ],
)
def test_constants__given_ones_then_the_encoders_own_then_usual_ones_with_a_note(
    options: dict[str, Any], channels: int, own: Any, wanted: Any, notes: int
) -> None:
    """One value is of every channel."""
    lines: list[Note] = []
    if isinstance(wanted, str):
        with pytest.raises(InputError, match=wanted):
            LoadOptions.from_user(**options).channel_constants(channels, own, lines)
    else:
        assert LoadOptions.from_user(**options).channel_constants(channels, own, lines) == wanted
    usual = "ImageNet's" if channels == 3 else "mean 0.5"
    assert [usual in line for line in sentences(lines)] == [True] * notes
