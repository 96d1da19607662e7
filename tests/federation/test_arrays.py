"""Weights in messages: numbers inside the process, Flower's own arrays outside of it."""

from __future__ import annotations

import pickle

import torch
from flwr.app import Array, ArrayRecord
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedmia.storage.arrays import record, tensors
from tests.pretend_card import CARD, pretend_card

STATE = {
    "w": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
    "n": torch.tensor(7),
    "half": torch.ones(2, dtype=torch.float64),
}


def same(found: dict[str, torch.Tensor]) -> bool:
    return found.keys() == STATE.keys() and all(
        t.equal(found[n]) and t.dtype == found[n].dtype for n, t in STATE.items()
    )


def test_record__gives_clients_copies_and_the_server_the_numbers() -> None:
    arrays = record(STATE)
    own = arrays.to_torch_state_dict()
    own["w"].zero_()
    assert same(tensors(arrays))
    assert tensors(arrays)["w"].data_ptr() == STATE["w"].data_ptr()


def test_record__travels_as_flowers_own() -> None:
    """What leaves the process is read by a side that knows nothing of us."""
    arrays = record(STATE)
    contents = {name: one.deflate() for name, one in get_all_nested_objects(arrays).items()}
    found = inflate_object_from_contents(arrays.object_id, contents)
    assert isinstance(found, ArrayRecord) and all(type(a) is Array for a in found.values())
    assert same(found.to_torch_state_dict())
    assert same(tensors(found))


def test_record__is_pickled_without_its_bytes() -> None:
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(record(STATE), protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == len(STATE)
    again = pickle.loads(text, buffers=[b.raw().tobytes() for b in buffers])  # as Ray: read only
    assert same(tensors(again))
    tensors(again)["w"].zero_()  # a copy: no warning, and no write to what is shared
    assert same(tensors(again))


def test_record__leaves_a_card_only_where_it_leaves_the_process() -> None:
    """Then it is what it would be from the host."""
    with pretend_card() as card:
        there = {name: tensor.to(CARD) for name, tensor in STATE.items()}
        card.take()
        arrays = record(there)
        assert {t.device for t in tensors(arrays).values()} == {CARD}
        there["w"].neg_()  # the same memory
        assert not card.take()["to host"]
        assert torch.equal(tensors(arrays)["w"].cpu(), -STATE["w"])
        there["w"].neg_()
        size = sum(t.nbytes for t in STATE.values())
        for leave in (ArrayRecord.to_torch_state_dict, pickled, sent):
            assert same(leave(arrays)) and card.take()["to host"] >= size
    assert record(STATE).object_id == arrays.object_id


def pickled(arrays: ArrayRecord) -> dict[str, torch.Tensor]:
    return tensors(pickle.loads(pickle.dumps(arrays, protocol=5)))


def sent(arrays: ArrayRecord) -> dict[str, torch.Tensor]:
    contents = {name: one.deflate() for name, one in get_all_nested_objects(arrays).items()}
    return tensors(inflate_object_from_contents(arrays.object_id, contents))
