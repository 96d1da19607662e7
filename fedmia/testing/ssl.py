"""What every self-supervised method promises, as functions: `check_ssl` runs them all."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from fedmia.errors import InputError
from fedmia.nets.smallnet import SmallNet
from fedmia.nets.vit import ViTTiny
from fedmia.seeding import torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSL, Recipe, SSLMethod
from fedmia.testing.material import (
    PIXELS,
    changed,
    everything,
    global_seed,
    instance,
    run,
    sentence,
    textures,
)

SMALL = {"dim": 8, "prototypes": 8, "queue": 16, "bank": 6, "decoder_width": 8, "decoder_depth": 1}


class SSLCase:
    """A method's options, and what its checks are made of: narrow networks, pairs of views.

    Args:
        ssl: a class, taken with its defaults but made small, or an instance, as it is.
    """

    def __init__(self, ssl: SSL | type[SSL]) -> None:
        self.spec: SSL = instance(ssl, SMALL)
        self.cls, self.name = type(self.spec), type(self.spec).__name__

    def build(self, seed: int = 0, images: int | None = None) -> SSLMethod:
        """An untrained method on a narrow SmallNet, or on a transformer where it needs one."""
        recipe, generator = Recipe((0.5,) * 3, (0.25,) * 3, images), torch_rng(seed, "test")
        try:
            built = self.spec.build(SmallNet(width=4).build(3, PIXELS), recipe, generator)
        except InputError:
            vit = ViTTiny(width=12, heads=3, depth=4, patch=2)
            built = self.spec.build(vit.build(3, PIXELS), recipe, torch_rng(seed, "test"))
        return built.train()

    def views(self, count: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Two views (count, 3, 8, 8) in [0, 1] of different images."""
        pixels = textures(count, seed).float() / 255
        noise = 0.1 * torch.rand(2, *pixels.shape, generator=torch_rng(seed, "views"))
        return (pixels + noise[0]).clamp(0, 1), (pixels + noise[1]).clamp(0, 1)

    def train(self, method: SSLMethod) -> SSLMethod:
        """Three steps; the last batch is a single image."""
        sgd = torch.optim.SGD(method.trainable(), lr=0.05)
        for turn, count in enumerate((5, 4, 1)):
            sgd.zero_grad()
            method.losses(*self.views(count, seed=turn)).mean().backward()
            sgd.step()
            method.after_step()
        return method


def declares_views_and_learning_rate(case: SSLCase) -> None:
    """Its class says where it is from; its views and rate can be used."""
    paper = getattr(case.cls, "paper", "")
    sentence(
        paper and "\n" not in paper, f"{case.name}.paper must say where it is from, in one line"
    )
    found = case.spec.augment
    sentence(isinstance(found, Augment), f"{case.name}.augment must be an Augment, got {found!r}")
    sentence(case.spec.lr > 0, f"{case.name}.lr must be > 0, got {case.spec.lr}")


def build_draws_from_its_generator(case: SSLCase) -> None:
    """Same seed, same weights, whatever the global generators hold."""
    built = []
    for seed in (1, 2):
        with global_seed(seed):
            built.append(everything(case.build()))
    wrong = changed(*built)
    sentence(wrong is None, f"{case.name}: {wrong} is not drawn from the generator of build")
    other = changed(built[0], everything(case.build(seed=1)))
    sentence(other is not None, f"{case.name}: another seed builds the same weights")


def losses_are_one_finite_number_an_image(case: SSLCase) -> None:
    """(B,), with gradients, of a batch and of a single image."""
    for count in (5, 1):
        method = case.build()
        losses = method.losses(*case.views(count))
        text = f"{case.name}: losses of {count} images are of shape {tuple(losses.shape)}"
        sentence(losses.shape == (count,), f"{text}, not ({count},)")
        sentence(losses.isfinite().all(), f"{case.name}: losses of {count} images are not finite")
        sentence(losses.requires_grad, f"{case.name}: losses have no gradient")


def coupled(case: SSLCase) -> bool:
    """Whether other images in the batch change an image's loss."""
    (a, b), (c, d) = case.views(), case.views(seed=9)
    want = case.build().losses(a, b)[:3]
    got = case.build().losses(torch.cat([a[:3], c[3:]]), torch.cat([b[:3], d[3:]]))[:3]
    return not torch.allclose(got, want, rtol=1e-4, atol=1e-5)


def losses_are_per_image_unless_coupled(case: SSLCase) -> None:
    """DP-SGD rests on it."""
    text = "an image's loss depends on the others of its batch, but coupled is False"
    sentence(case.spec.coupled or not coupled(case), f"{case.name}: {text}")


def training_repeats_and_moves_the_weights(case: SSLCase) -> None:
    """To the bit, and stays finite."""
    trained = []
    for seed in (1, 2):
        with global_seed(seed):
            trained.append(everything(case.train(case.build())))
    wrong = changed(*trained)
    sentence(wrong is None, f"{case.name}: two trainings with one seed differ in {wrong}")
    odd = next((n for n, t in trained[0].items() if not t.isfinite().all()), None)
    sentence(odd is None, f"{case.name}: {odd} is not finite after three steps")
    moved = changed(
        case.build().shared_state(), trained[0] | case.train(case.build()).shared_state()
    )
    sentence(moved is not None, f"{case.name}: training leaves the shared weights as they were")


def shared_state_comes_back(case: SSLCase) -> None:
    """A copy of every trained float; a state that does not fit is refused."""
    method, other = case.train(case.build()), case.build(seed=1)
    state, names = method.shared_state(), method.shared_parameters()
    floats = all(t.is_floating_point() for t in state.values())
    sentence(floats, f"{case.name}: shared_state holds tensors that are not floats")
    whole = set(names) <= set(state) and len(names) == len(method.trainable())
    sentence(whole, f"{case.name}: shared_state lacks parameters that are trained")
    kept = copy.deepcopy(state)
    other.load_shared(state)
    wrong = changed(state, other.shared_state())
    sentence(wrong is None, f"{case.name}: load_shared loses {wrong}")
    case.train(method)
    wrong = changed(kept, state)
    sentence(wrong is None, f"{case.name}: shared_state is no copy: {wrong} moves with training")
    less = {n: t for n, t in state.items() if n != names[0]}
    for what, odd in (("lacks a parameter", less), ("is unknown", state | {"?": state[names[0]]})):
        try:
            other.load_shared(odd)
        except ValueError:
            continue
        raise AssertionError(f"{case.name}: load_shared takes a state in which a tensor {what}")


def local_state_comes_back(case: SSLCase) -> None:
    """A client that is built anew goes on as if it had stayed."""
    method, other = case.train(case.build()), case.build()
    state, shared = method.local_state(), method.shared_state()
    kept = copy.deepcopy(state)
    other.load_shared(shared)
    other.load_local(state)
    wrong = changed(state, other.local_state())
    sentence(wrong is None, f"{case.name}: load_local loses {wrong}")
    for one in (method, other):
        case.train(one)
    # Integer counters of batch norm, which nothing reads, may differ.
    wrong = changed(*(one.shared_state() | one.local_state() for one in (method, other)))
    text = "local_state lacks something: a client that is restored trains otherwise, see"
    sentence(wrong is None, f"{case.name}: {text} {wrong}")
    wrong = changed(kept, state)
    sentence(wrong is None, f"{case.name}: local_state is no copy: {wrong} moves with training")


def rounds_begin_with_the_weights_received(case: SSLCase) -> None:
    """Only local state may change."""
    method = case.train(case.build())
    state = method.shared_state()
    method.begin_first_round()
    method.begin_round()
    wrong = changed(state, method.shared_state())
    sentence(wrong is None, f"{case.name}: beginning a round changes the shared {wrong}")


def output_losses_are_an_observers(case: SSLCase) -> None:
    """Before and after the bank is filled; they change nothing, and have gradients."""
    method, (a, b) = case.train(case.build()).eval(), case.views()
    for filled in (False, True):
        if filled:
            shared = method.shared_state()
            method.fill_bank(case.views(7, seed=4)[0])
            wrong = changed(shared, method.shared_state())
            sentence(wrong is None, f"{case.name}: fill_bank changes the shared {wrong}")
        before = everything(method)
        losses = method.output_losses(method.encoder(a), method.encoder(b))
        text = f"{case.name}: output_losses are of shape {tuple(losses.shape)}, not (5,)"
        sentence(losses.shape == (5,), text)
        sentence(losses.isfinite().all(), f"{case.name}: output_losses are not finite")
        sentence(losses.requires_grad, f"{case.name}: output_losses have no gradient")
        wrong = changed(before, everything(method))
        sentence(wrong is None, f"{case.name}: output_losses change {wrong}")
        near = torch.allclose(method.probe_losses(a, b), losses, rtol=1e-4, atol=1e-5)
        sentence(near, f"{case.name}: probe_losses are not the output_losses of the two views")


def notes_are_sentences(case: SSLCase) -> None:
    """And holders of few images can build it."""
    for images in (1, 11, 10**6):
        case.build(images=images)
        found = case.spec.notes(images)
        right = all(isinstance(n, str) and n and "\n" not in n for n in found)
        sentence(isinstance(found, list) and right, f"{case.name}: notes are no lines: {found!r}")


SSL_CHECKS: tuple[Callable[[SSLCase], None], ...] = (
    declares_views_and_learning_rate,
    build_draws_from_its_generator,
    losses_are_one_finite_number_an_image,
    training_repeats_and_moves_the_weights,
    losses_are_per_image_unless_coupled,
    shared_state_comes_back,
    local_state_comes_back,
    rounds_begin_with_the_weights_received,
    output_losses_are_an_observers,
    notes_are_sentences,
)


def check_ssl(ssl: SSL | type[SSL]) -> None:
    """Check that a self-supervised method keeps the promises of `fedmia.ssl.base`.

    Raises:
        AssertionError: one sentence that says which promise it breaks.
    """
    run(SSL_CHECKS, SSLCase, ssl)
