"""One encoder in every form that an audit takes: an image has the same score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedmia
from fedmia.attacks.base import Known
from fedmia.settings import registry
from tests.auditing.conftest import Sides
from tests.auditing.test_remote import CONSTANTS, Api, api, module

__all__ = ["api"]  # a fixture
VIEWS, SEED = 3, 4
PLAIN, DRAWN, FITTED = ["lpla"], ["similarity"], ["sd-mi"]
OF_ATTACK: dict[str, dict[str, Any]] = {"similarity": {"views": VIEWS}, "sd-mi": {"steps": 5}}
Images = list[np.ndarray]


@pytest.fixture
def images(archives: Sides) -> Images:
    """uint8 (N, 3, 8, 8) of members and of others."""
    files = archives.members, archives.nonmembers
    return [np.load(file)["x"].transpose(0, 3, 1, 2) for file in files]


def options(attacks: list[str]) -> dict[str, Any]:
    own = {name: one for name, one in OF_ATTACK.items() if name in attacks}
    return {
        "attacks": attacks,
        "attack": own,
        "known": 6,
        "seed": SEED,
        "quiet": True,
        "threads": 1,
    }


def by_image(run: fedmia.Run) -> Any:
    return run.scores.set_index(["truth", "image"])


def assert_same(ours: fedmia.Run, theirs: fedmia.Run, attacks: list[str]) -> None:
    """Every image that both score has one score by each attack."""
    left, right = by_image(ours).align(by_image(theirs), join="inner", axis=0)
    assert len(left) > 20 and left.index.get_level_values("truth").nunique() == 2
    for attack in attacks:
        np.testing.assert_allclose(left[attack], right[attack], atol=1e-6, rtol=0, err_msg=attack)


def assert_vectors_same(ours: fedmia.Run, images: Images, encoder: nn.Module, **how: Any) -> None:
    """The vectors of an encoder, in files or memory, have its scores."""
    box = fedmia.view(encoder, seed=SEED, **how)
    sides = [torch.from_numpy(one) for one in images]
    views = [box.embed_views(one, VIEWS) for one in sides]
    assert_same(ours, fedmia.audit_embeddings(*views, **options(DRAWN)), DRAWN)
    # Known images are drawn by content, and a vector has another: lpla is fitted by hand on those.
    plain = [box.embed_plain(one) for one in sides]
    scores = by_image(fedmia.audit_embeddings(*plain, **options(PLAIN)))["lpla"]
    scored = [np.array(scores.xs(truth).index, dtype=int) for truth in (True, False)]
    known = [np.setdiff1d(np.arange(len(s)), at) for s, at in zip(sides, scored, strict=True)]
    assert [len(one) for one in known] == [6, 6]
    attack = registry.build("attack", "lpla", {})
    known_images = [side[at] for side, at in zip(sides, known, strict=True)]
    attack.fit(box, Known(*known_images), np.random.default_rng(0))
    for truth, side, at in zip((True, False), sides, scored, strict=True):
        np.testing.assert_allclose(
            scores.xs(truth), attack.score(box, side[at]), atol=1e-6, rtol=1e-6
        )


@pytest.mark.slow(seconds=2)
def test_forms__module_function_api_and_vectors(api: Api, images: Images) -> None:  # noqa: F811
    encoder = module().eval()

    def function(pixels: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return encoder(torch.tensor(pixels)).numpy()

    every, constants = PLAIN + DRAWN + FITTED, {"mean": [0.0], "std": [1.0]}
    assert CONSTANTS == "--mean 0 --std 1"

    def audit(form: Any, **more: Any) -> fedmia.Run:
        return fedmia.audit_encoder(form, *images, **options(every), **more)

    ours = audit(encoder, access="black_box", **constants)
    for form in (function, api.url):
        assert_same(ours, audit(form), every)
    assert_vectors_same(ours, images, encoder, **constants)


def test_forms__hf_module_and_vectors(images: Images, tmp_path: Path) -> None:
    hf: Any = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = hf.Dinov2Model(hf.Dinov2Config(**small, mlp_ratio=2, image_size=8, patch_size=4)).eval()
    model.save_pretrained(tmp_path / "hf")
    constants = {"mean": [0.5] * 3, "std": [0.25] * 3}
    own = {f"image_{name}": values for name, values in constants.items()}
    own["size"] = {"height": 8, "width": 8}  # type: ignore[assignment]
    (tmp_path / "hf" / "preprocessor_config.json").write_text(json.dumps(own))

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            vectors: Tensor = self.model(x).pooler_output
            return vectors

    every = PLAIN + DRAWN + FITTED
    how = {"access": "black_box", **options(every)}
    ours = fedmia.audit_encoder(f"hf:{tmp_path / 'hf'}", *images, **how)
    assert_same(ours, fedmia.audit_encoder(Pooled(), *images, **how, **constants), every)
    assert_vectors_same(ours, images, Pooled(), **constants)
