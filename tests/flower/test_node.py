"""A node with images of its own, message by message: what it lets out, and what it accounts."""

from __future__ import annotations

import copy
import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedmia.defenses.stack import OPEN
from fedmia.lowerbounds.gdp import epsilon_at
from fedmia.settings.errors import InputError
from tests.flower.nodes import Node, as_bytes, drawn, flat, held, own_images, told

CLIP, SCALE = 0.005, 0.003
GAUSSIAN = f"--train.lr 30 --defense gaussian --defense.scale {SCALE} --defense.clip {CLIP} "
BESIDE = "of the weights alone"

pytestmark = pytest.mark.usefixtures("clock")


def epsilon(releases: int) -> Any:
    """What so many releases cost."""
    return pytest.approx(epsilon_at(2 * CLIP / SCALE * releases**0.5, 1e-5), rel=1e-9)


def stated(node: Node) -> dict[str, Any]:
    """The privacy statement of a node."""
    statement: dict[str, Any] = told(node.score())["defence"]["epsilon"]
    return statement


def test_order__that_comes_again_gets_the_same_bytes_and_any_other_is_a_release_more(
    tmp_path: Path,
) -> None:
    """Also one for a round that was released, or of a branch that no private run has."""
    node, beside = Node(tmp_path, GAUSSIAN), ArrayRecord({"clip": torch.ones(1)})
    others: list[dict[str, Any]] = [
        {}, {"shift": 0.1}, {}, {"branch": "zero"}, {"round": 2}, {"broadcast": beside},
        {"broadcast": ArrayRecord({"clip": torch.full((1,), 2.0)})},
        {"broadcast": ArrayRecord({"other": torch.ones(1)})},
        {"broadcast": ArrayRecord({"clip": torch.ones(1, 1)})},
        {"broadcast": ArrayRecord({"clip": torch.ones(1).double()})},
    ]  # fmt: skip
    replies = []
    for number, order in enumerate(others, start=1):
        replies.append(as_bytes(node.train(**order)))
        for _ in range(2):  # its answer was lost on the way
            assert as_bytes(node.train(**order)) == replies[-1]
        if number in (1, 4):
            assert stated(node)["value"] == epsilon(number)
    ups = [arrays for arrays, _ in replies]
    assert all(one != another for one, another in itertools.combinations(ups, 2))
    assert (stated(node)["value"], stated(node)["rounds"]) == (epsilon(len(others)), len(others))
    assert len(node.kept()) == 1 and not [*(tmp_path / "kept").rglob("zero-*")]


@pytest.mark.parametrize(
    ("flags", "apart"),
    [
        (GAUSSIAN, SCALE * 2**0.5),
        ("--defense dpsgd --defense.lr 0.1 --defense.noise_multiplier 1", None),
        ("--defense dpsgd --defense.lr 0.1 --defense.noise_multiplier 1e-6", None),
    ],
    ids=["gaussian", "dpsgd", "batches alone"],
)
def test_two_nodes_alike__draw_apart(flags: str, apart: float | None, tmp_path: Path) -> None:
    """The same images, seed and order: with the seed's noise, whoever has it takes it off."""
    nodes = [Node(tmp_path / name, flags) for name in "ab"]
    ups = [flat(held(node.train())) - node.first() for node in nodes]
    between, length = float(np.linalg.norm(ups[0] - ups[1])), float(np.linalg.norm(ups[0]))
    if apart is None:  # noise of 1e-6 alone would put them apart by .001
        assert 0.01 < between / length < 2
    else:  # each update is clipped, and noised by itself
        assert between == pytest.approx(apart * len(ups[0]) ** 0.5, rel=0.1)
        assert length**2 == pytest.approx(len(ups[0]) * SCALE**2 + CLIP**2, rel=0.1)
    assert stated(nodes[0])["noise_source"] == "entropy"


def test_noise__is_in_no_file_and_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = list[int]()

    def noted(bits: int) -> int:
        draws.append(random.getrandbits(bits))
        return draws[-1]

    monkeypatch.setattr("secrets.randbits", noted)
    shown = repr(as_bytes((node := Node(tmp_path, GAUSSIAN)).train())).encode()
    shown += b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert draws and min(draws) > 2**200 and node.kept()
    for root in draws:
        words = (root.to_bytes(32, order) for order in ("big", "little"))
        assert not any(form in shown for form in (str(root).encode(), b"%x" % root, *words))


def test_rest__is_no_release(tmp_path: Path) -> None:
    node = Node(tmp_path, "--defense early-stopping,gaussian --defense.early-stopping.after 1")
    node.train()
    (before,) = [file.read_bytes() for file in node.kept()]
    assert as_bytes(node.train(2))[1]["num-examples"] == 0
    assert [file.read_bytes() for file in node.kept()] == [before]
    assert stated(node)["rounds"] == 1


DPSGD = "--ssl byol --ssl.head_norm none --defense dpsgd,gaussian"
PUBLIC = "--defense dpsgd --ssl.queue_source public --split.public 5 "


@pytest.mark.parametrize(
    ("flags", "config", "leave", "standings"),
    [
        ("", {}, True, []),
        ("", {"scores": False}, False, []),
        ("--defense weight-decay ", {}, True, []),
        ("--strategy dp-fedavg ", {}, False, []),
        (GAUSSIAN, {}, False, [("client", "guaranteed")]),
        (GAUSSIAN, {"scores": False}, False, [("client", "guaranteed")]),
        (GAUSSIAN, {"scores": True}, True, [("client", BESIDE)]),
        (DPSGD, {"scores": True}, True, [("client", BESIDE), ("image", BESIDE)]),
        (PUBLIC, {}, False, [("image", "guaranteed")]),
        (PUBLIC, {"scores": True}, True, [("image", BESIDE)]),
    ],
)
def test_scores__leave_by_default_where_nothing_is_guaranteed_and_withdraw_what_is(
    flags: str, config: dict[str, Any], leave: bool, standings: list[Any], tmp_path: Path
) -> None:
    node = Node(tmp_path, flags, drawn(8, 8, 6), **config)
    node.train()
    reply = node.score()
    answer, arrays = told(reply), held(reply).get("scores", {})
    assert {*reply.content} == ({"told", "scores"} if leave else {"told"})
    assert answer["size"] == 8 and ("attacks" in answer) is leave
    if leave:  # 2 known and 6 scored a side; a control has no threshold, so no known images
        assert {a.shape for a in arrays.values()} == {(2,), (6,), (0,)}
        of = {"known_members": 2, "scored_nonmembers": 6, "public": 5 * (flags == PUBLIC)}
        assert answer["split"] == answer["split"] | of
    defence = answer["defence"]
    each = [one for one in (defence and defence["epsilon"], *((defence or {}).get("beside", ())))
            if one]  # fmt: skip
    assert sorted((one["unit"], one["standing"]) for one in each) == standings
    for one in each:
        void = "nothing is promised to whoever sees the report" in one["assumptions"]
        assert void is leave and one["rounds"] == 1
        assert flags != GAUSSIAN or one["value"] == epsilon(1)
    for part in [defence, *defence["parts"]] if defence else ():
        assert {*part["metrics"]} <= OPEN or not standings


def test_scores__are_those_of_the_final_model_and_the_control_those_of_the_first(
    tmp_path: Path,
) -> None:
    """The final one is nothing but zeros here, under which all images look the same."""
    node = Node(tmp_path)
    order = copy.deepcopy(node.orders["query.score"])
    state = {n: t * 0 for n, t in order["final"].to_torch_state_dict().items()}
    order["final"] = ArrayRecord(torch_state_dict=state)
    reply = node.tell("query.score", order)
    (attack,), (control,) = (told(reply)[kind] for kind in ("attacks", "untrained"))
    for one, distinct in ((attack, 1), (control, 6)):
        for side in ("members", "nonmembers"):
            scores = held(reply)["scores"][one[f"scores_{side}"]["array"]].numpy()
            assert len(scores) == 6 and len({*scores.tolist()}) == distinct


def test_copies__play_no_role_and_are_not_trained_on(tmp_path: Path) -> None:
    """One that is known to the attacker is not scored, however often the node has it."""
    members, others = drawn(14, 8)
    sides = [np.concatenate([side, side[:7], side[3:5]]) for side in (members, others)]
    node = Node(tmp_path, "--split.known 4", sides)
    assert as_bytes(node.train())[1]["num-examples"] == 14
    answer = told(reply := node.score())
    assert answer["size"] == 14 and answer["split"] == answer["split"] | {
        "distinct": 22, "duplicates_removed": 18, "members": 14, "known_members": 4,
        "scored_members": 10, "known_nonmembers": 4, "scored_nonmembers": 4,
    }  # fmt: skip
    assert {len(a.numpy()) for a in held(reply)["scores"].values()} == {0, 4, 10}


MEMBERS, OTHERS = drawn(8, 8)
SHARED = [np.concatenate([MEMBERS, OTHERS[:1]]), OTHERS]
SMALL_EPSILON = (
    "--ssl byol --ssl.head_norm none --defense dpsgd --defense.epsilon 1e-3 "
    "--defense.accountant rdp --defense.delta 1e-12"
)
REFUSED: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "few": ("--split.known 7", None, {}, "8 distinct members are too few: .* at least 2 must"),
    "least": ("--split.known 6", None, {}, ""),
    "few others": ("", drawn(8, 3), {}, "3 distinct nonmembers are too few"),
    "both": ("", SHARED, {}, "members and nonmembers share 1 byte-equal"),
    "public": (PUBLIC, drawn(8, 8, 4), {}, "5 images that no client holds are asked for.* has 4"),
    "public twice": (PUBLIC, [MEMBERS, OTHERS, MEMBERS[:5]], {}, "members and public share 5"),
    "no file": ("", None, {"members": "npz:a.npz"}, "client 0: members: npz: no such file: a.npz"),
    "words": (GAUSSIAN, None, {"scores": "no"}, "scores must be true or false, got 'no'"),
    "noise": (SMALL_EPSILON, None, {}, "client 0: .*a client of 8 images: epsilon 0.001 is too"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_begin__refuses_before_any_round(name: str, tmp_path: Path) -> None:
    flags, sides, config, line = REFUSED[name]
    if not line:
        assert Node(tmp_path, flags, sides, **config).begin()
        return
    with pytest.raises(InputError, match=line):
        Node(tmp_path, flags, sides, **config)


def test_sides__are_both_given_and_of_one_shape(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.config |= own_images(tmp_path / "large", [MEMBERS, np.zeros((8, 9, 9), np.uint8)])
    with pytest.raises(InputError, match="members are images of 1x8x8, nonmembers .* 1x9x9"):
        node.begin()
    for side, line in (
        ("nonmembers", "given members alone, not members and nonmembers"),
        ("members", "client 0 is given no members and nonmembers of its own"),
    ):
        del node.config[side]
        with pytest.raises(InputError, match=line):
            node.begin()


def test_what_a_private_node_keeps__stays(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.train()
    whole = {"source": "main", "target": "zero", "clients": 1}
    orders: dict[str, Any] = {"kept": {"branch": "main"}, "fork": whole}
    for action, order in orders.items():
        with pytest.raises(InputError, match="client 0 has images of its own: what it keeps stay"):
            node.tell(f"query.{action}", RecordDict({"order": ConfigRecord(order)}))
    with pytest.raises(InputError, match="client 0 has images of its own: for private runs alone"):
        node.begin(private=False)
    node.tell("query.end", RecordDict())
    assert not [*(tmp_path / "kept").iterdir()]
    with pytest.raises(InputError, match="client 0 knows nothing of this run"):
        node.train()
