"""Names that wrappers add to a checkpoint's, and which of its networks is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedmia.encoders.base import EncoderFacts, LoadOptions, load
from fedmia.encoders.checkpoint import load_checkpoint
from fedmia.report.words.notes import sentences
from fedmia.settings.errors import InputError
from tests.encoders.conftest import Tiny, make_tiny
from tests.encoders.forms import moco_v2, solo_learn

ADDED = (
    "module", "_module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
)  # fmt: skip
ONLINE = make_tiny().state_dict()


def halved(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A network with other values, such as an average has."""
    return {n: t * 0.5 if t.is_floating_point() else t for n, t in tensors.items()}


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def read(contents: Any, folder: Path, key: str | None = None) -> tuple[nn.Module, list[str]]:
    """The network that the file fills, and the notes."""
    path, module = folder / "file.pth", Tiny()
    torch.save(contents, path)
    facts = EncoderFacts("tiny", LoadOptions(path, key=key))
    load_checkpoint(facts, module)
    return module, sentences(facts.notes)


def holds(module: nn.Module, tensors: dict[str, Tensor]) -> bool:
    return all(torch.equal(t, tensors[n]) for n, t in module.state_dict().items())


@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize(
    "place",
    [
        lambda n, a: f"{a}.{n}",
        lambda n, a: f"{a}.model.{a}.{n}",
        lambda n, a: n.replace("layer1.", f"layer1.{a}."),  # of one part alone
        lambda n, a: f"{n.rpartition('.')[0]}.{a}.{n.rpartition('.')[2]}",
    ],
)
def test_names__of_wrappers_stand_anywhere(
    added: str, place: Callable[[str, str], str], tmp_path: Path
) -> None:
    module, notes = read({"state_dict": {place(n, added): t for n, t in ONLINE.items()}}, tmp_path)
    assert holds(module, ONLINE) and notes == []


def test_names__of_the_networks_own_are_read_as_they_are(tmp_path: Path) -> None:
    path, module = tmp_path / "file.pth", nn.ModuleDict({"module": Tiny()})
    torch.save({"state_dict": under("module.", ONLINE)}, path)
    load_checkpoint(EncoderFacts("own", LoadOptions(path)), module)
    assert holds(module["module"], ONLINE)


def test_names__the_error_tells_the_first_that_finds_no_place(tmp_path: Path) -> None:
    names = {n.replace("layer1.", "layer1._strange."): t for n, t in ONLINE.items()}
    said = r"'layer1.0.weight' is missing in 'state_dict' \(.*; 'layer1._strange.0.weight' finds no"
    with pytest.raises(InputError, match=said):
        read({"state_dict": names}, tmp_path)


AVERAGED = halved(ONLINE)
FILES: dict[str, tuple[Any, str, str]] = {  # contents, the average's name, the other's
    "Lightning": (
        {"state_dict": under("model.", ONLINE) | under("ema_model.module.", AVERAGED)},
        "ema_model", "model",
    ),
    "timm": ({"state_dict": ONLINE, "state_dict_ema": AVERAGED}, "state_dict_ema", "state_dict"),
    "MAE, fine-tuned": ({"model": ONLINE, "model_ema": AVERAGED}, "model_ema", "model"),
    "BYOL": (
        {"online_network_state_dict": ONLINE, "target_network_state_dict": AVERAGED},
        "target_network_state_dict", "online_network_state_dict",
    ),
    "one table": (
        under("online.backbone.", ONLINE) | under("target.backbone.", AVERAGED),
        "target.backbone", "online.backbone",
    ),
    "teacher": ({"student": ONLINE, "teacher": AVERAGED}, "teacher", "student"),
    "outermost": (ONLINE | under("ema.", AVERAGED), "ema", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_networks__the_average_is_taken_and_said(name: str, tmp_path: Path) -> None:
    contents, average, online = FILES[name]
    module, notes = read(contents, tmp_path)
    assert holds(module, AVERAGED)
    assert f"'{average}' was taken" in notes[-1] and f"'{online}'" in notes[-1]
    if online:
        module, notes = read(contents, tmp_path, online)
        assert holds(module, ONLINE) and notes == []
    module, notes = read(contents, tmp_path, average)
    assert holds(module, AVERAGED) and notes == []


@pytest.mark.parametrize(
    "contents",
    [
        {"best": ONLINE, "last": AVERAGED},
        {"model": ONLINE, "ema_fast": AVERAGED, "ema_slow": halved(AVERAGED)},
        under("model.", ONLINE) | under("encoder.", AVERAGED),
    ],
)
def test_networks__of_which_none_is_the_average_are_refused_by_name(
    contents: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(
        InputError, match="^encoder.checkpoint_key .* must name one of .* tensors: "
    ) as error:
        read(contents, tmp_path)
    names = str(error.value).partition("tensors: ")[2].split("'")[1::2]
    read_as = [read(contents, tmp_path, name)[0].state_dict()["fc.bias"] for name in names]
    values = {float(bias[0] / ONLINE["fc.bias"][0]) for bias in read_as}
    assert len(values) == len(names) == 2 + ("ema_slow" in contents) and {1.0, 0.5} <= values


def test_networks__an_average_may_lack_counters_of_batches(tmp_path: Path) -> None:
    """As one that was made of the parameters and the statistics alone."""
    names = {n: t for n, t in solo_learn().contents["state_dict"].items() if "momentum" not in n}
    averaged = {n: t for n, t in halved(names).items() if t.is_floating_point()}
    assert len(averaged) < len(names)
    torch.save({"state_dict": names | under("ema.module.", averaged)}, path := tmp_path / "f.pth")
    assert any("'ema.backbone' was taken" in note for note in sentences(load(str(path)).notes))
    online = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    average = {n: t + 1 for n, t in online.state_dict().items() if "num_batches" not in n}
    torch.save({"model": online.state_dict(), "ema": average}, path)
    load_checkpoint(facts := EncoderFacts("own", LoadOptions(path)), online)
    assert "'ema' was taken" in sentences(facts.notes)[-1]
    assert torch.equal(online[0].bias, average["0.bias"])


def test_networks__with_the_same_values_are_one(tmp_path: Path) -> None:
    module, notes = read({"state_dict": ONLINE, "model": dict(ONLINE)}, tmp_path)
    assert holds(module, ONLINE) and notes == []


def test_networks__of_a_known_code_base_are_its_authors_choice(tmp_path: Path) -> None:
    torch.save(moco_v2().contents, tmp_path / "file.pth")
    notes = [
        note for note in sentences(load(str(tmp_path / "file.pth")).notes) if "networks" in note
    ]
    assert len(notes) == 1 and "'encoder_q' was taken" in notes[0]


def test_networks__a_known_code_base_is_known_behind_a_prefix(tmp_path: Path) -> None:
    """As Lightning keeps a network that its module calls `model`."""
    made, path = moco_v2(), tmp_path / "file.pth"
    torch.save({"state_dict": under("model.", made.contents["state_dict"])}, path)
    loaded = load(str(path))
    assert loaded.weights.form == "MoCo" and made.head is not None
    assert any("'model.encoder_q' was taken" in note for note in sentences(loaded.notes))
    assert torch.equal(loaded.method.encoder.head[0].weight, made.head[0].weight)


def test_networks__the_average_beside_a_known_code_base_has_its_head(tmp_path: Path) -> None:
    made, path = solo_learn(), tmp_path / "file.pth"
    names = {n: t for n, t in made.contents["state_dict"].items() if "momentum" not in n}
    torch.save({"state_dict": names | under("ema.module.", halved(names))}, path)
    loaded = load(str(path))
    assert any("'ema.backbone' was taken" in note for note in sentences(loaded.notes))
    encoder = loaded.method.encoder
    assert torch.equal(encoder.head[0].weight, made.head[0].weight * 0.5)
    conv = encoder.backbone.module.conv1.weight
    assert torch.equal(conv, made.backbone.conv1.weight * 0.5)
