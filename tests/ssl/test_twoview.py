"""What the methods without a queue share: keys, bank, local state, training; and their heads."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.smallnet import SmallNet
from fedmia.options import registry
from fedmia.options.seeding import rng, torch_rng
from fedmia.simulate import main
from fedmia.ssl._bank import info_nce
from fedmia.ssl._heads import mlp
from fedmia.ssl._twoview import TwoView
from fedmia.ssl.base import Recipe
from fedmia.ssl.train import Job, Train, make_optimizer

BANKED, ALL = ["simclr", "mocov3"], ["simclr", "mocov3", "vicreg"]
TINY = (
    "--clients 2 --rounds 2 --train.local_epochs 1 --model.width 4 "
    "--split.members 21 --split.nonmembers 24 --split.known 6 --split.test 20 --device cpu "
    "--attacks combined --attack.combined.views 4 --federation.snapshots 1 --json"
)


def pixels(count: int, seed: int) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def make(name: str, seed: int = 0, images: int | None = None, **options: Any) -> TwoView:
    bank = {"bank": 6} if name in BANKED else {}
    spec = registry.build("ssl", name, {"dim": 8, **bank, **options})
    recipe = Recipe((0.5,) * 3, (0.25,) * 3, images)
    method: TwoView = spec.build(SmallNet(width=4).build(3, 8), recipe, torch_rng(seed, "test"))
    return method


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def step(method: TwoView, a: Tensor, b: Tensor, lr: float = 0.1) -> None:
    sgd = torch.optim.SGD(method.trainable(), lr=lr)
    method.losses(a, b).mean().backward()
    sgd.step()
    sgd.zero_grad()
    method.after_step()


@pytest.mark.parametrize("name", ALL)
def test_losses__say_coupled_and_are(name: str) -> None:
    """Another image in the batch changes an image's loss."""
    assert registry.build("ssl", name, {}).coupled is True
    method, a, b = make(name), pixels(4, 0), pixels(4, 1)
    other = torch.cat([a[:3], pixels(1, 2)])
    assert bool((method.losses(a, b)[:3] != method.losses(other, b)[:3]).all())


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_losses__fall_in_training(name: str, textures: Any) -> None:
    # MoCo v3 collapses at three times this rate, on some processors and not on others.
    recipe, train = Recipe((0.5,) * 3, (0.25,) * 3), Train(batch_size=8, lr=0.02, local_epochs=5)
    spec = registry.build("ssl", name, {"crop_min": 0.8, "flip": 0.0, "jitter": 0.25})
    method = spec.build(SmallNet().build(3, 8), recipe, torch_rng(0, "test"))
    job = Job(
        method=method, optimizer=make_optimizer(method, train), images=textures(64).numpy(),
        augment=spec.augment, train=train, rng=rng(0, "train"),
        step=0, total_steps=10**6, device=torch.device("cpu"),
    )  # fmt: skip
    means = [job.run()["loss"] for _ in range(12)]
    assert means[-1] < 0.9 * means[0]


@pytest.mark.parametrize("name", ALL)
def test_losses__of_a_step_repeat_and_bfloat16_is_near(name: str) -> None:
    one, two, a, b = make(name), make(name), pixels(4, 0), pixels(4, 1)
    for method in (one, two):
        step(method, a, b)
        step(method, b[:1], a[:1])  # an epoch's last batch
    assert same(one.shared_state(), two.shared_state())
    assert same(one.local_state(), two.local_state())
    with torch.autocast("cpu", torch.bfloat16):
        half = one.losses(a, b)
    torch.testing.assert_close(half.float(), one.losses(a, b), rtol=0.1, atol=0.05)


@pytest.mark.parametrize("name", [*ALL, "byol", "dino", "swav"])
def test_build__draws_every_weight_from_the_generator(name: str) -> None:
    torch.manual_seed(1)
    one = make(name, seed=3).state_dict()
    torch.manual_seed(2)
    assert same(one, make(name, seed=3).state_dict())
    assert not same(one, make(name, seed=4).state_dict())


def test_shared_state__holds_the_predictor_and_takes_its_mean() -> None:
    assert not any(n.startswith("predictor.") for n in make("simclr").shared_state())
    one, two, mean = (make("mocov3", seed) for seed in range(3))
    states = one.shared_state(), two.shared_state()
    names = {f"predictor.{n}" for n, _ in one.predictor.named_parameters()}
    assert {n for n in states[0] if n.startswith("predictor.")} == names
    assert not any(n.startswith("key") for n in states[0])
    mean.load_shared({n: (states[0][n] + states[1][n]) / 2 for n in states[0]})
    weights = zip(mean.trainable(), one.trainable(), two.trainable(), strict=True)
    assert all(torch.equal(m, (a + b) / 2) for m, a, b in weights)
    assert len(mean.trainable()) == len(states[0])
    with pytest.raises(ValueError, match="does not fit"):
        mean.load_shared({n: t for n, t in states[0].items() if n not in names})


@pytest.mark.parametrize("name", ALL)
def test_local_state__round_trip(name: str) -> None:
    trained, fresh = make(name, 0), make(name, 1)
    step(trained, pixels(4, 0), pixels(4, 1))
    snapshot = trained.local_state()
    fresh.load_local(snapshot)
    assert same(fresh.local_state(), snapshot)
    fresh.load_shared(trained.shared_state())
    torch.testing.assert_close(
        fresh.losses(pixels(4, 2), pixels(4, 3)), trained.losses(pixels(4, 2), pixels(4, 3)),
        rtol=0, atol=0,
    )  # fmt: skip
    copies = copy.deepcopy(snapshot)
    step(fresh, pixels(4, 2), pixels(4, 3))  # what was handed out does not move
    assert same(snapshot, copies)


@pytest.mark.parametrize("key", ["keep", "reset"])
def test_begin_round__keeps_or_resets_the_momentum_encoder(key: str) -> None:
    method = make("mocov3", key=key)
    with torch.no_grad():
        for weight in method.encoder.parameters():
            weight.add_(1.0)
    before = copy.deepcopy(method.key_encoder.state_dict())
    method.begin_round()
    expected = before if key == "keep" else method.encoder.state_dict()
    assert same(method.key_encoder.state_dict(), expected)
    method.begin_first_round()
    assert same(method.key_encoder.state_dict(), method.encoder.state_dict())


@pytest.mark.parametrize("name", BANKED)
def test_bank__is_a_ring_of_the_latest_outputs(name: str) -> None:
    method, expected = make(name), []
    assert method.bank.rows is not None
    expected = list(method.bank.rows.clone())
    for count in (4, 1, 3, 8):
        a, b = pixels(count, count), pixels(count, 9)
        with torch.no_grad():
            expected = [*expected, *F.normalize(method.encoder(a), dim=1)][-6:]
        before = method.bank.rows.clone()
        method.losses(a, b)
        assert torch.equal(method.bank.rows, before)  # it moves after the step
        method.after_step()
        ring = torch.roll(method.bank.rows, -method.bank.pointer, dims=0)
        torch.testing.assert_close(ring, torch.stack(expected))
        method.after_step()  # without new losses there are no new outputs
        torch.testing.assert_close(torch.roll(method.bank.rows, -method.bank.pointer, dims=0), ring)


@pytest.mark.parametrize("name", BANKED)
def test_output_losses__info_nce_against_the_bank(name: str) -> None:
    """Before the bank is filled too; lengths of outputs play no part; state stays as it is."""
    method, a, b = make(name), pixels(4, 0), pixels(4, 1)
    for fill in (False, True):
        if fill:
            method.fill_bank(pixels(5, 2))
            bank = F.normalize(method.encoder(pixels(5, 2)), dim=1)
            torch.testing.assert_close(method.bank.rows, bank)
            assert not method.bank.rows.requires_grad and method.bank.pointer == 0
        before = copy.deepcopy(method.state_dict())
        got = method.probe_losses(a, b)
        assert got.requires_grad and same(before, method.state_dict())
        z1, z2 = (F.normalize(method.encoder(x), dim=1) for x in (a, b))
        T = method.spec.temperature
        want = info_nce(z1, z2, method.bank.rows, T) + info_nce(z2, z1, method.bank.rows, T)
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
        longer = method.output_losses(3 * z1.double(), z2.double())
        torch.testing.assert_close(longer.float(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_output_losses__lower_for_images_trained_on(name: str, textures: Any) -> None:
    both = textures(32, seed=5).float() / 255
    method = make(name)
    views = [(both + 0.1 * pixels(32, seed)).clamp(0, 1) for seed in (1, 2)]
    lr, steps = (0.02, 200) if name == "vicreg" else (0.1, 60)  # VICReg learns by heart late
    for _ in range(steps):
        step(method, *[v[:16] for v in views], lr=lr)
    method.fill_bank(pixels(8, 3))
    with torch.no_grad():
        losses = method.probe_losses(*views)
    assert float(losses[:16].mean()) < float(losses[16:].mean())


@pytest.mark.parametrize(("images", "K"), [(None, 6), (12, 6), (11, 5), (1, 1)])
@pytest.mark.parametrize("name", BANKED)
def test_bank__is_capped_at_half_the_images_and_says_so(
    name: str, images: int | None, K: int
) -> None:
    assert len(make(name, images=images).bank) == K
    if images is not None:
        notes = registry.build("ssl", name, {"bank": 6}).notes(images)
        assert len(notes) == (K < 6) and all(f"from 6 to {K}" in n for n in notes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_simulate__two_clients_repeat_bit_for_bit(name: str, capsys: Any) -> None:
    """Ten images a client: the last batch of an epoch is short."""
    reports = []
    for _ in range(2):
        assert main([*TINY.split(), "--ssl", name]) == 0
        report = json.loads(capsys.readouterr().out)
        reports.append({k: v for k, v in report.items() if k != "timing"})
    assert reports[0] == reports[1]
    assert reports[0]["attacks"][0]["name"] == "combined"


@pytest.mark.parametrize("norm", ["layer", "batch", "none"])
def test_mlp__layers_norms_and_biases(norm: str) -> None:
    head = mlp(4, 6, 3, 3, norm, last_norm=True)
    linear = [m for m in head if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == [(4, 6), (6, 6), (6, 3)]
    assert all((m.bias is None) == (norm == "batch") for m in linear)
    assert sum(isinstance(m, nn.ReLU) for m in head) == 2
    kind = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d, "none": nn.Linear}[norm]
    assert isinstance(head[-1], kind)
    assert head(torch.zeros(2, 4)).shape == (2, 3)
    assert [type(m) for m in mlp(4, 9, 3, 1, norm)] == [nn.Linear]


def test_mlp__refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="norm must be one of layer, batch, none, got 'group'"):
        mlp(4, 6, 3, 2, "group")
    with pytest.raises(ValueError, match="layers must be >= 1, got 0"):
        mlp(4, 6, 3, 0)
