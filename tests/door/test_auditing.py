"""`fedmia.audit_encoder`: a module, a run or a name, and images of any form."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import fedmia
from fedmia.attacks.similarity import Similarity
from tests.door.test_simulation import TINY, network, own_attack

RNG = np.random.default_rng(0)
MEMBERS, OTHERS = (RNG.integers(0, 256, (30, 1, 12, 12), dtype=np.uint8) for _ in range(2))


def encoder() -> nn.Module:
    """The same network at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return network(1)


def test_images_of_the_session_are_read_again_and_of_another_one_are_indexed(
    tmp_path: Path,
) -> None:
    run = fedmia.audit_encoder(
        encoder(), MEMBERS, OTHERS, attacks=["similarity"], known=5, quiet=True, out=tmp_path
    )
    assert np.array_equal(
        run.images.pixels("scored_members"), MEMBERS[run.images.ids("scored_members")]
    )
    config = (tmp_path / "config.yaml").read_text(encoding="utf-8")  # as of another session
    config = re.sub(r"((?:non)?members)@\w+", r"\1@0123456789ab", config)
    (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
    with pytest.raises(fedmia.InputError, match="were arrays in memory.*index your own"):
        _ = fedmia.open_run(run.folder).images
    # What the error says to do: the places are those of the user's own arrays.
    for truth, images in ((True, MEMBERS), (False, OTHERS)):
        places = run.scores.loc[run.scores["truth"] == truth, "image"].to_numpy()
        assert len(set(places)) == len(images) - 5
        assert 0 <= places.min() <= places.max() < len(images)
    floats = TensorDataset(torch.from_numpy(OTHERS) / 255)
    other = fedmia.audit_encoder(
        encoder(), MEMBERS[:, 0], floats, attacks="similarity", known=5, quiet=True
    )
    assert other.scores.equals(run.scores)


@pytest.mark.slow(seconds=2)
def test_gradients__are_on_wherever_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    both = ["similarity", "grad-norm", "lira"]
    outside = fedmia.audit_encoder(encoder(), MEMBERS, OTHERS, attacks=both, known=5, quiet=True)
    assert capsys.readouterr().err == ""  # quiet
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            module = encoder()
            run = fedmia.audit_encoder(module, MEMBERS, OTHERS, attacks=both, known=5)
            attacker = fedmia.view(module)
        assert run.records.attacks == outside.records.attacks
        assert list(run.attacks.index) == both[:2] and attacker.copy_method().trainable()
        assert "fedmia: not run: lira: needs shadow encoders" in capsys.readouterr().err


class Breaking(Similarity):
    def score(self, view: Any, images: Any) -> Any:
        return 1 / 0


def test_not_run__a_failure_is_said_even_if_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    both = [Breaking, "lpla"]
    run = fedmia.audit_encoder(encoder(), MEMBERS, OTHERS, attacks=both, known=5, quiet=True)
    said = capsys.readouterr().err
    assert "not run: " in said and ":Breaking: failed: ZeroDivisionError" in said
    assert list(run.attacks.index) == ["lpla"]


@pytest.mark.slow
def test_own_attack_and_a_run_whose_folder_lives_as_long_as_it_does() -> None:
    run = fedmia.audit_encoder(
        encoder(), MEMBERS, OTHERS, attacks=own_attack(), known=5, quiet=True
    )
    assert list(run.attacks.index) == ["Length"]
    federated = fedmia.run_simulation(**TINY)
    audited = fedmia.audit_encoder(federated, attacks="similarity", quiet=True)
    assert list(audited.attacks.index) == ["similarity"]
    shown, folder = federated._repr_html_(), federated.folder
    said = (federated.verdict, federated.means, federated.sure)
    assert all(text and text[:20] in shown for text in said)
    assert "similarity" in shown and "<script" not in shown and "report.html" in shown
    assert folder.is_dir()
    del federated, audited
    gc.collect()
    assert not folder.parent.exists()


def test_bad_input() -> None:
    for others, more, said in (
        (RNG.integers(0, 256, (30, 3, 12, 12), dtype=np.uint8), {}, "must have the same channels"),
        (OTHERS, {"attacks": ["simlarity"]}, "did you mean 'similarity'"),
    ):
        with pytest.raises(fedmia.InputError, match=said):
            fedmia.audit_encoder(encoder(), MEMBERS, others, **more)
    with pytest.raises(fedmia.InputError, match="others is missing"):
        fedmia.audit_encoder(encoder(), MEMBERS)
    with pytest.raises(fedmia.InputError, match="unknown dataset 'digit'"):
        fedmia.audit_encoder(encoder(), MEMBERS, "digit")
