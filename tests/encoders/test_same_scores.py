"""The same weights in every form of encoder: the same scores, or the same refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedmia.attacks.base import Attack, Known
from fedmia.encoders.base import LoadedEncoder, LoadOptions, load
from fedmia.encoders.memory import load_module
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.library import view
from fedmia.options import registry
from fedmia.options.errors import InputError
from tests.encoders.conftest import SIZE, make_tiny, save_onnx, save_pt2

OPTIONS: dict[str, Any] = {"size": SIZE, "mean": 0.5, "std": 0.25}
ATTACKS = ("similarity", "lpla", "grad-norm")
FACTORY = "tests.encoders.conftest:Tiny"
RUN = Path(__file__).resolve().parents[1] / "stored" / "run"
REFUSED = "needs white_box access as outsider, the attacker has black_box"


def in_memory(module: nn.Module) -> LoadedEncoder:
    return load_module(module, LoadOptions(**OPTIONS))


def in_inference_mode(folder: Path) -> LoadedEncoder:
    with torch.inference_mode():
        module = make_tiny()
    return in_memory(module)


def from_checkpoint(path: Path, contents: Any) -> LoadedEncoder:
    if path.suffix == ".safetensors":
        save_file(contents, path)
    else:
        torch.save(contents, path)
    return load(FACTORY, checkpoint=path, **OPTIONS)


def named(prefix: str) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in make_tiny().state_dict().items()}


FORMS: dict[str, Callable[[Path], LoadedEncoder]] = {
    "module": lambda folder: in_memory(make_tiny()),
    "frozen": lambda folder: in_memory(make_tiny().requires_grad_(False)),
    "compiled": lambda folder: in_memory(torch.compile(make_tiny(), backend="eager")),  # type: ignore[arg-type]
    "DataParallel": lambda folder: in_memory(nn.DataParallel(make_tiny())),
    "traced": lambda folder: in_memory(torch.jit.trace(make_tiny(), torch.zeros(1, 3, SIZE, SIZE))),
    "inference_mode": in_inference_mode,
    "vector and map": lambda folder: in_memory(make_tiny(both=True)),
    "factory": lambda folder: load("tests.encoders.conftest:make_tiny", **OPTIONS),
    ".pt": lambda folder: from_checkpoint(folder / "w.pt", make_tiny().state_dict()),
    ".safetensors": lambda folder: from_checkpoint(folder / "w.safetensors", named("")),
    "Lightning": lambda folder: from_checkpoint(folder / "w.ckpt", {"state_dict": named("model.")}),
    "names of DataParallel": lambda folder: from_checkpoint(
        folder / "w.pth", {"state_dict": named("module.")}
    ),
    "names of torch.compile": lambda folder: from_checkpoint(folder / "w.pth", named("_orig_mod.")),
    ".pt2": lambda folder: load(save_pt2(make_tiny(), folder / "w.pt2"), **OPTIONS),
    ".onnx": lambda folder: load(save_onnx(make_tiny(), folder / "w.onnx"), **OPTIONS),
}
BLACK = (".pt2", ".onnx")


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    """Random images, of which five a side are known."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (26, 3, SIZE, SIZE), generator=draw, dtype=torch.uint8)

    def build(name: str) -> Attack:
        options = {"views": 3} if name == "similarity" else {}
        attack: Attack = registry.build("attack", name, options)
        return attack

    return Scorer(Known(images[:5], images[5:10]), images[10:18], images[18:], 0, build)


def scores(loaded: LoadedEncoder, scorer: Scorer, access: str | None = None) -> dict[str, Any]:
    """Scores of each attack, or why it has none."""
    got: dict[str, Any] = {}
    for name in ATTACKS:
        attacker = view(loaded, held=scorer.known.both()[0], access=access)
        try:
            row = scorer.score_attack(name, attacker, threshold=False)
            got[name] = np.concatenate([row.scores_members, row.scores_nonmembers])
        except InputError as error:
            got[name] = str(error)
    return got


def same(got: dict[str, Any], want: dict[str, Any]) -> None:
    for name, expected in want.items():
        if isinstance(expected, str):
            assert got[name] == expected
        else:
            np.testing.assert_allclose(got[name], expected, rtol=2e-4, atol=1e-5)


@pytest.fixture(scope="module")
def expected(scorer: Scorer) -> dict[str, dict[str, Any]]:
    """Of the module in memory, by access."""
    return {a: scores(in_memory(make_tiny()), scorer, a) for a in ("white_box", "black_box")}


@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=pytest.mark.slow if f in BLACK else ()) for f in FORMS]
)
def test_scores__are_those_of_the_module(
    form: str, scorer: Scorer, expected: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    loaded = FORMS[form](tmp_path)
    assert loaded.access == ("black_box" if form in BLACK else "white_box")
    same(scores(loaded, scorer), expected[loaded.access])
    same(scores(loaded, scorer, "black_box"), expected["black_box"])
    assert REFUSED in expected["black_box"]["grad-norm"]


def test_scores__of_a_run_are_those_of_its_encoder(scorer: Scorer) -> None:
    loaded = load(str(RUN))
    channels, size = loaded.channels, loaded.size
    assert channels is not None and size is not None
    images = scorer.candidates[:, :channels, :size, :size]
    known = Known(
        *(
            side[:, :channels, :size, :size]
            for side in (scorer.known.members, scorer.known.nonmembers)
        )
    )
    own = Scorer(known, images[:8], images[8:], 0, scorer.build)
    of_encoder = load_module(loaded.method.encoder, LoadOptions(size=size))
    of_run, alike = scores(loaded, own), scores(of_encoder, own)
    same({n: alike[n] for n in ATTACKS[1:2]}, {n: of_run[n] for n in ATTACKS[1:2]})
