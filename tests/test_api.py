"""`fedmia.view` and `fedmia.audit_encoder` of a module: the scores and the report of a command."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedmia
import fedmia.attacks
from fedmia import view
from fedmia.attacks import Attack, Combined, EncoderMIV, Known, LpLA, Similarity
from fedmia.encoders.base import load
from fedmia.seeding import rng
from fedmia.settings import option, registry
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.testing import material
from fedmia.threat import BlackBox, BudgetError, Shadow, Threat, WhiteBox
from tests.auditing.brought import tiny
from tests.commands import fedmia as command

ENCODER = "tests.test_api:made"
MEMBERS, NONMEMBERS, SEED = 24, 30, 3


SAME = material.textures(9)


def made(channels: int = 3) -> nn.Module:
    """Two convolutions, pooled, the same at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return tiny(channels)[:-1]


@dataclass
class Brightness(Attack):
    """The mean output: an attack of the user's own."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("features",)
    power: float = option(1.0, "of the mean", gt=0)

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        """Nothing to learn."""

    def score(self, view: Any, images: Tensor) -> np.ndarray:
        mean = view.embed_plain(images, "avgpool").double().mean(dim=1).abs()
        return (mean**self.power).numpy()


def audit(encoder: Any, members: Any, others: Any, **options: Any) -> fedmia.Run:
    """A quiet audit of a module."""
    return fedmia.audit_encoder(encoder, members, others, quiet=True, **options)


@pytest.fixture(scope="module")
def sides(textures: Any) -> tuple[Tensor, Tensor]:
    both = textures(MEMBERS + NONMEMBERS, seed=4)
    return both[:MEMBERS], both[MEMBERS:]


# -- imports -----------------------------------------------------------------------------------


def test_import__finds_every_attack_by_its_class() -> None:
    classes = [registry.load("attack", name) for name in registry.names("attack")]
    for cls in classes:
        assert getattr(fedmia.attacks, cls.__name__) is cls
    listed = {cls.__name__ for cls in classes} | {"Attack", "ActiveAttack"}
    listed |= {"DatasetAttack", "Known", "NotFitted"}
    assert set(fedmia.attacks.__all__) == listed <= set(dir(fedmia.attacks))


@pytest.mark.parametrize(
    ("name", "hint"),
    [("LpLa", "'LpLA'"), ("Similarty", "'Similarity'"), ("Knwon", "'Known'"), ("lpl", None)],
)
def test_import__names_the_nearest(name: str, hint: str | None) -> None:
    with pytest.raises(AttributeError, match=f"no attack '{name}'") as caught:
        getattr(fedmia.attacks, name)
    assert hint is None or f"did you mean {hint}?" in str(caught.value)


@pytest.mark.slow
def test_import__loads_what_is_asked_for() -> None:
    program = """
import sys, fedmia.attacks.base
loaded = {m for m in sys.modules if m.startswith("fedmia.attacks.")}
assert loaded == {"fedmia.attacks.base"}, loaded
from fedmia.attacks import lpla, Known, LpLA
assert LpLA is lpla.LpLA
import fedmia.api
others = {"fedmia.attacks.similarity", "fedmia.settings.registry", "sklearn", "flwr", "rich"}
assert not others & set(sys.modules), others & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- one attack --------------------------------------------------------------------------------


def test_view__scores_as_the_harness(sides: tuple[Tensor, Tensor]) -> None:
    mi_v = EncoderMIV(views=3, epochs=2, fit_on="known")
    attacks = [LpLA(), Similarity(views=3), mi_v, Combined(views=4)]
    run = audit(made(), *sides, attacks=attacks, seed=SEED)
    dealt, rows = run.images, run.records.attacks
    known = Known(dealt.pixels("known_members"), dealt.pixels("known_nonmembers"))
    augment = Augment(**run.records.config["views"])
    attacker = view(made(), size=8, seed=SEED, augment=augment, held=known.both()[0])
    assert [row.name for row in rows] == [attack.name for attack in attacks]
    for attack, row in zip(attacks, rows, strict=True):
        before = attacker.queries
        attack.fit(attacker, known, rng(SEED, "fit", row.name))
        for role, truth in (("scored_members", True), ("scored_nonmembers", False)):
            expected = run.scores.loc[run.scores["truth"] == truth].set_index("image")[row.name]
            scores = attack.score(attacker, dealt.pixels(role))
            np.testing.assert_allclose(scores, expected.loc[dealt.ids(role)], rtol=1e-5)
        attack.score(attacker, known.both()[0])  # for the threshold
        assert row.queries <= attacker.queries - before


def test_view__leaves_the_encoder_as_it_was(images: Tensor) -> None:
    encoder = made().train().requires_grad_(False).double()
    before = copy.deepcopy(encoder.state_dict())
    attacker = view(encoder, held=images)
    assert attacker.embed_plain(images[:3]).shape == (3, 8)
    assert encoder.training and not any(p.requires_grad for p in encoder.parameters())
    for name, tensor in encoder.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)  # and of its type


def test_view__normalises_as_told_and_grants_what_is_asked_for(images: Tensor) -> None:
    white, black = view(made(), mean=[0], std=[1]), view(made(), access="black_box", budget=7)
    other = view(made(), mean=[0.2, 0.3, 0.4], std=[0.5])
    scaled = images.float() / 255
    with torch.no_grad():
        assert torch.allclose(white.embed_plain(images), made()(scaled), atol=1e-6)
        shifted = (scaled - torch.tensor([0.2, 0.3, 0.4]).view(1, 3, 1, 1)) / 0.5
        assert torch.allclose(other.embed_plain(images), made()(shifted), atol=1e-6)
    assert type(white) is WhiteBox and type(black) is BlackBox
    assert len(white.layers) == 4 and not hasattr(black, "layers")
    black.embed_plain(images[:7])
    with pytest.raises(BudgetError):
        black.embed_plain(images[:1])


def test_view__takes_a_method_and_keeps_its_loss(make_moco: Any, images: Tensor) -> None:
    method, options = make_moco(seed=2), {"seed": 0, "held": images[:6]}
    attacker = view(method, augment=Augment(hue=0.1), size=8, **options)
    expected = WhiteBox(method, Augment(hue=0.1), device=torch.device("cpu"), **options)
    assert torch.equal(attacker.embed_plain(images), expected.embed_plain(images))
    assert torch.equal(attacker.losses(images, 2, "held"), expected.losses(images, 2, "held"))
    assert attacker.copy_method().bank.rows.shape[0] == 6  # filled with what is held
    assert method.queue.shape[0] != 6


def test_view__takes_what_load_returned_and_shadows(images: Tensor, known: Known) -> None:
    released = load(ENCODER, size=8)
    shadow = Shadow(view(made(), size=8), images[:8], images[8:16])
    attacker = view(released, shadows=[shadow])
    assert torch.equal(attacker.embed_plain(images), shadow.view.embed_plain(images))
    assert attacker.shadows == (shadow,)
    attack = EncoderMIV(views=2, epochs=1)
    attack.fit(attacker, known, np.random.default_rng(0))
    assert attack.score(attacker, images).shape == (20,)
    with pytest.raises(InputError, match=r"data.mean \(--mean\): .* holds its own"):
        view(released, mean=[0.5], std=[0.25])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(encoder=5), "encoder must be a torch module, .* got int"),
        (
            dict(access="all"),
            r"encoder.access \(--access\) to Sequential: 'all', must be black_box or white_box",
        ),
        (dict(std=[0.0]), r"^data.std \(--std\): 0.0, must be > 0"),
        (dict(channels=1), "Sequential fails on blank images of 1x"),
        (dict(held=torch.rand(4, 3, 8, 8) + 1), "^held must be images, .* got float32 from 1"),
        (dict(held=np.zeros((4, 2, 8, 8), np.uint8)), r"C 1 or 3; got uint8 \(4, 2, 8, 8\)"),
        (dict(held=5), "^held must be images: .* got int"),
    ],
)
def test_view__refuses(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        view(**{"encoder": made(), **given})


def test_attack__refuses_floats(images: Tensor, known: Known) -> None:
    attacker, floats = view(made()), images.float() / 255
    with pytest.raises(InputError, match=r"must be uint8 .* got float32 \(40, 3, 8, 8\)"):
        LpLA().fit(attacker, Known(floats, floats), np.random.default_rng(0))
    for attack in (LpLA(), Similarity(views=2)):
        attack.fit(attacker, known, np.random.default_rng(0))
        with pytest.raises(InputError, match=r"must be uint8 .* got float32 \(20, 3, 8, 8\)"):
            attack.score(attacker, floats)


# -- an audit ----------------------------------------------------------------------------------


def test_audit__runs_an_attack_of_the_users_own(sides: tuple[Tensor, Tensor]) -> None:
    run, own = audit(made(), *sides, attacks=[Brightness(power=2.0)]), f"{__name__}:Brightness"
    assert run.records.config["attack"] == {own: {"power": 2.0}}
    assert list(run.attacks.index) == [own]


def test_audit__takes_options_and_the_views(sides: tuple[Tensor, Tensor]) -> None:
    report = audit(
        made(), *sides, attacks="similarity,lpla", attack={"similarity": {"views": 2}},
        augment=Augment(crop_min=0.9, flip=0.0), known=5, limit=4, sweep="known=2,4",
        query_budget=200, mean=0.5, std=np.array([0.25]),
    ).records  # fmt: skip
    config = report.config
    assert report.split["known_members"] == 5 and report.split["scored_members"] == 4
    assert config["views"]["crop_min"] == 0.9 and len(report.sweep) == 4
    pixels, device = config["data"], config["machine"]["device"]
    assert (pixels["mean"], pixels["std"], device) == ([0.5], [0.25], "cpu")
    queries = {row.name: row.queries for row in report.attacks}
    assert queries["similarity"] == 2 * 8 + 2 * 10  # the known images set its threshold


def test_audit__trains_shadows(sides: tuple[Tensor, Tensor]) -> None:
    plan = {"epochs": 1, "model": "smallnet", "knowledge": ("data",)}
    report = audit(made(), *sides, attacks="encodermi-t", shadows=1, shadow=plan).records
    assert not report.not_run and report.split["spare_nonmembers"] == 12


def test_audit__goes_on_with_the_same_weights_and_images_alone(
    sides: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    out, other = tmp_path / "OUT", made()
    first = audit(made(), *sides, attacks="lpla", out=out)
    again = audit(made(), *sides, attacks="lpla,similarity", out=out)
    assert first.scores["lpla"].equals(again.scores["lpla"]) and "similarity" in again.scores
    with torch.no_grad():
        next(other.parameters()).add_(1)
    for encoder, members in ((other, sides[0]), (made(), sides[0].flip(0))):
        with pytest.raises(InputError, match="already holds another run or audit"):
            audit(encoder, members, sides[1], attacks="lpla", out=out)
    assert command(f"audit --config {out}/config.yaml", tmp_path / "NO").code == 2


@pytest.mark.parametrize("labelled", ["members", "others"])
def test_audit__probes_use_the_labels_of_the_others(
    sides: tuple[Tensor, Tensor], labelled: str
) -> None:
    members, others = ((x, np.arange(len(x)) % 2) for x in sides)
    pair = (members, others[0]) if labelled == "members" else (members[0], others)
    utility = audit(made(), *pair, attacks="lpla", known=5).records.utility
    assert (utility.knn is not None) == (labelled == "others")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(nonmembers=np.zeros((9, 3, 8, 7), np.uint8)), "8x7 pixels are not square"),
        (dict(nonmembers=np.random.default_rng(0).random((9, 3, 9, 9))), r"nonmembers .* of 3x9x9"),
        (dict(nonmembers=material.textures(9)[:, :1]), r"images of 3x8x8, nonmembers .* of 1x8x8"),
        (
            dict.fromkeys(("members", "nonmembers"), SAME),
            "nonmembers share 9 byte-equal",
        ),
        (dict(encoder=made(1)), "the images have 3 channels, Sequential takes 1"),
        (dict(encoder=object), "encoder must be a torch module, .* got type"),
        (dict(known=23), "24 members and 30 non-members are too few for split.known .* 23"),
        (dict(known=1), r"^split.known \(--known\): 1, must be >= 2"),
        (dict(attacks="lpl"), "unknown attack 'lpl'; did you mean 'lpla'"),
        (dict(attacks="lira"), "no attack could run; lira: needs shadow encoders"),
        (dict(attack={"lpla": {"q": 2}}), "option attack.lpla.q"),
        (dict(members=(SAME, [1, 2])), r"labels of members must be integers or text \(9,\)"),
        (dict(shadows=1, shadow={"epoch": 1}), "did you mean 'shadow.epochs'"),
        (dict(shadow_data=np.zeros((9, 2, 8, 8)), shadows=1), "shadow.data must be images"),
        (dict(shadow_data="npz:x.npz"), r"^shadow.data .* is given without shadow.count .* N"),
        (dict(device="cuda:99"), r"machine.device .* cuda:99: torch finds"),
        (
            dict(owners=[0] * MEMBERS),
            r"owners .* is given without federation.recording .* RECORDING",
        ),
        (dict(loss=torch.mean), r"loss .* is given without federation.recording .* RECORDING"),
        (dict(checkpoint="w.pth"), r"checkpoint .* w.pth: a module holds its own weights"),
    ],
)
def test_audit__refuses(
    sides: tuple[Tensor, Tensor], given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    values = {"encoder": made(), "members": sides[0], "nonmembers": sides[1], "attacks": "lpla"}
    values |= given
    three = [values.pop(name) for name in ("encoder", "members", "nonmembers")]
    with pytest.raises(InputError, match=said):
        audit(*three, **values, out=tmp_path / "OUT")
    assert not (tmp_path / "OUT").exists()
