"""Modules in memory as people bring them: wrapped, kept from an earlier pass, scripted, opaque."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedmia.encoders.base import LoadedEncoder, LoadOptions
from fedmia.encoders.memory import load_module
from fedmia.nets.smallnet import SmallNet
from fedmia.report.words.notes import sentences
from fedmia.settings.errors import InputError
from tests.encoders.conftest import SIZE, Tiny, make_tiny


class Keeping(Tiny):
    """Keeps what it computed, in a list within a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, list[Tensor]] = {"last": []}

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        assert isinstance(out, Tensor)
        self.kept["last"].append(out)
        return out


class Remote(nn.Module):
    """Answers as a service does: no weights here, numbers without a graph; counts the images."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = [make_tiny()]  # in a list: none of its own parts
        self.asked = [0]

    def __deepcopy__(self, memo: object) -> Remote:
        return self

    def forward(self, x: Tensor) -> Tensor:
        self.asked[0] += len(x)
        with torch.no_grad():
            out: Tensor = self.answer[0](x)
        return torch.from_numpy(out.numpy())


class Unread(nn.Module):
    """Weights that nothing reads."""

    def __init__(self, reads: bool = False) -> None:
        super().__init__()
        self.scale, self.reads = nn.Parameter(torch.rand(3)), reads

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3)) + (0 * self.scale if self.reads else 0)


def kept() -> nn.Module:
    module = Keeping()
    module.load_state_dict(make_tiny().state_dict())
    module.eval()(torch.rand(2, 3, SIZE, SIZE))
    assert not module.kept["last"][0].is_leaf
    return module


def old_weight_norm() -> nn.Module:
    module = make_tiny()
    nn.utils.weight_norm(module.fc)
    return module


def compiled_inside() -> nn.Module:
    module = make_tiny()
    module.layer1 = torch.compile(module.layer1, backend="eager")  # type: ignore[assignment]
    return module


def in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return make_tiny()


BROUGHT: dict[str, Callable[[], nn.Module]] = {
    "weight_norm": old_weight_norm,
    "kept": kept,
    "frozen": lambda: make_tiny().requires_grad_(False),
    "vector and map": lambda: make_tiny(both=True),
    "compiled": lambda: torch.compile(make_tiny(), backend="eager"),  # type: ignore[return-value]
    "compiled inside": compiled_inside,
    "DataParallel": lambda: nn.DataParallel(make_tiny()),
    "average": lambda: torch.optim.swa_utils.AveragedModel(make_tiny()),
    "inference_mode": in_inference_mode,
}


def embed(loaded: LoadedEncoder, images: Tensor) -> Tensor:
    with torch.no_grad():
        out: Tensor = loaded.method.encoder(images.float() / 255)
    return out


@pytest.mark.parametrize("name", BROUGHT)
def test_load_module__is_the_bare_network(name: str, pictures: Tensor) -> None:
    module = BROUGHT[name]()
    before = dict(module.named_children())
    bare, loaded = (load_module(m, LoadOptions(size=SIZE)) for m in (make_tiny(), module))
    torch.testing.assert_close(embed(loaded, pictures), embed(bare, pictures))
    assert loaded.method.encoder.layers == bare.method.encoder.layers
    assert loaded.access == "white_box" and dict(module.named_children()) == before
    trained = copy.deepcopy(loaded.method)
    trained.encoder(pictures.float()).sum().backward()
    assert all(p.grad is not None for p in trained.encoder.parameters())
    torch.testing.assert_close(embed(loaded, pictures), embed(bare, pictures))
    assert not torch.allclose(loaded.untrained().encoder(pictures.float()), embed(bare, pictures))


@pytest.mark.parametrize("how", ["script", "trace"])
def test_load_module__torchscript_gives_its_output_alone(how: str, pictures: Tensor) -> None:
    bare = make_tiny() if how == "trace" else nn.Sequential(make_tiny().layer1, nn.Flatten()).eval()
    module: nn.Module = (
        torch.jit.trace(bare, torch.zeros(1, 3, SIZE, SIZE))
        if how == "trace"
        else torch.jit.script(bare)
    )
    loaded, own = (load_module(m, LoadOptions(size=SIZE)) for m in (module, bare))
    assert loaded.method.encoder.layers == ("avgpool", "encoder")
    assert loaded.access == "white_box"
    assert any("TorchScript" in note for note in sentences(loaded.notes))
    torch.testing.assert_close(embed(loaded, pictures), embed(own, pictures))
    loaded.untrained()


def test_load_module__what_cannot_be_copied_is_refused_with_the_way_out() -> None:
    module = make_tiny()
    module.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(InputError, match="Tiny cannot be copied .*package.module:factory"):
        load_module(module, LoadOptions())


def test_load_module__no_weights_no_twin_and_no_white_box() -> None:
    remote = Remote()
    loaded = load_module(remote, LoadOptions(size=SIZE))
    assert loaded.access == "black_box"
    assert any(note.startswith("No gradient of Remote") for note in sentences(loaded.notes))
    asked = remote.asked[0]
    with pytest.raises(InputError, match="no weights to permute"):
        loaded.untrained()
    assert remote.asked[0] == asked  # nothing is asked for a void control
    with pytest.raises(
        InputError, match=r"encoder.access \(--access\) to Remote: 'white_box', must be black_box"
    ):
        load_module(remote, LoadOptions(size=SIZE, access="white_box"))
    assert load_module(make_tiny(), LoadOptions(access="black_box")).access == "black_box"


def test_load_module__a_twin_with_the_same_outputs_is_none() -> None:
    for reads, access in ((False, "black_box"), (True, "white_box")):
        loaded = load_module(Unread(reads), LoadOptions(size=SIZE))
        assert loaded.access == access
        with pytest.raises(InputError, match="do not change with its weights"):
            loaded.untrained()


def test_load_module__an_output_is_named_where_there_are_several(pictures: Tensor) -> None:
    module = make_tiny(both=True)
    named = load_module(module, LoadOptions(size=SIZE, embedding="1"))
    expected = load_module(nn.Sequential(module.layer1, module.layer2), LoadOptions(size=SIZE))
    assert torch.equal(embed(named, pictures), embed(expected, pictures))
    for encoder in (SmallNet(width=4).build(3, SIZE), expected):
        with pytest.raises(
            InputError, match="^encoder.embedding.*(has one embedding only|holds its own)"
        ):
            load_module(encoder, LoadOptions(size=SIZE, embedding="0"))
