"""What every self-supervised method promises, as functions: `check_ssl` runs them all."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property, partial

import torch
from torch import Tensor

from fedmia.nets.smallnet import SmallNet
from fedmia.nets.vit import ViTTiny
from fedmia.report.words.notes import in_words
from fedmia.seeding import torch_rng
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSL, SSLMethod, TrainingData
from fedmia.testing.material import (
    PIXELS,
    Case,
    call_under_seeds,
    changed,
    everything,
    run,
    textures,
)

SMALL = {"dim": 8, "prototypes": 8, "queue": 16, "bank": 6, "decoder_width": 8, "decoder_depth": 1}


class SSLCase(Case):
    """A method's options (of a class made small), narrow networks and pairs of views."""

    def __init__(self, ssl: SSL | type[SSL]) -> None:
        super().__init__(ssl, SSL, SMALL)
        self.spec: SSL = self.first

    def build(self, seed: int = 0, images: int | None = None) -> SSLMethod:
        """An untrained method on a narrow SmallNet, or on a transformer where it needs one.

        Args:
            seed: of the weights.
            images: number of images of the holder; None: no cap.

        Returns:
            the method, on the CPU.

        Raises:
            AssertionError: the method cannot be built.
        """
        training_data = TrainingData(
            (0.5,) * 3, (0.25,) * 3, images, textures(7, seed=3).numpy(), 4
        )
        for net in (SmallNet(width=4), ViTTiny(width=12, heads=3, depth=4, patch=2)):
            try:
                built = self.spec.build(
                    net.build(3, PIXELS), training_data, torch_rng(seed, "test")
                )
            except InputError as error:
                refused = error
            else:
                return built.train()
        raise refused

    def views(self, count: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Two views (count, 3, 8, 8) in [0, 1] of different images.

        Args:
            count: number of images.
            seed: of the pixels.

        Returns:
            both views.
        """
        pixels = textures(count, seed).float() / 255
        noise = 0.1 * torch.rand(2, *pixels.shape, generator=torch_rng(seed, "views"))
        return (pixels + noise[0]).clamp(0, 1), (pixels + noise[1]).clamp(0, 1)

    def train(self, method: SSLMethod) -> SSLMethod:
        """Three steps; the last batch is a single image."""
        sgd = torch.optim.SGD(method.trainable(), lr=0.05)
        for turn, count in enumerate((5, 4, 1)):
            sgd.zero_grad()
            method.step_losses(*self.views(count, seed=turn)).mean().backward()
            sgd.step()
            method.after_step()
        return method

    @cached_property
    def _usual(self) -> SSLMethod:
        (method,) = call_under_seeds(lambda: self.train(self.build()), 1)
        return method

    def trained(self) -> SSLMethod:
        """A method of its own after `train`, which is run once."""
        return copy.deepcopy(self._usual)

    def losses_of(self, losses: Tensor, count: int, what: str) -> None:
        """Refuse losses that are not one finite number an image, with gradients.

        Args:
            losses: `(B,)`.
            count: wanted number of losses, B.
            what: what gave the losses, for the error.
        """
        text = (
            f"{what} are of shape {tuple(losses.shape)}, not ({count},); give one number an image"
        )
        whole = "a loss of the whole batch is added to each (loss.expand(B))"
        self.must(losses.shape == (count,), f"{text}: {whole}")
        text = f"{what} are not finite; a batch of one image has no deviation: leave such terms out"
        self.must(losses.isfinite().all(), text)
        text = f"{what.split(' of ')[0]} have no gradient; detach targets alone, not the outputs"
        self.must(losses.requires_grad, text)


def declares_views_and_learning_rate(case: SSLCase) -> None:
    """Its class says where it is from; its views and rate can be used."""
    case.declares_paper()
    augment = case.spec.augment
    text = f".augment must be an Augment, got {augment!r}; of a TwoViewSSL set paper_views"
    case.must(isinstance(augment, Augment), text)
    text = f".lr must be > 0, got {case.spec.lr}: `lr: ClassVar[float] = 0.06`"
    case.must(case.spec.lr > 0, text)


def build_draws_from_its_generator(case: SSLCase) -> None:
    """Same seed, same weights, whatever the global generators hold."""
    one, two = call_under_seeds(lambda: everything(case.build()), 1, 2)
    way = "set weights by that generator alone, as self.encoder and self.predictor do"
    case.require_equal(one, two, f"{{}} is not drawn from the generator of build; {way}")
    other = changed(one, everything(case.build(seed=1)))
    case.must(other, f"another seed builds the same weights; {way}")


def losses_are_one_finite_number_an_image(case: SSLCase) -> None:
    """(B,), with gradients, of a batch and of a single image."""
    for count in (5, 1):
        losses = case.build().step_losses(*case.views(count))
        case.losses_of(losses, count, f"losses of {count} images")


def coupled(case: SSLCase) -> bool:
    """Whether other images in the batch change an image's loss."""
    (a, b), (c, d) = case.views(), case.views(seed=9)
    want = case.build().step_losses(a, b)[:3]
    got = case.build().step_losses(torch.cat([a[:3], c[3:]]), torch.cat([b[:3], d[3:]]))[:3]
    return not torch.allclose(got, want, rtol=1e-4, atol=1e-5)


def losses_are_per_image_unless_coupled(case: SSLCase) -> None:
    """DP-SGD rests on it."""
    text = (
        "an image's loss depends on the others of its batch, but coupled is False; say "
        "`coupled = True` on the class of options, or take no statistics of the batch"
    )
    case.must(case.spec.coupled or not coupled(case), text)


def forgets_images_unless_it_says_so(case: SSLCase) -> None:
    """The guarantee of DP-SGD rests on it: after steps on other images, and the same weights, the
    losses of an image are the same to the bit."""
    one, two = case.build(), case.build()
    if one.remembers:
        text = "remembers must be part of a sentence; write it without a line break"
        case.must("\n" not in one.remembers, text)
        return
    for turn, (mine, theirs) in enumerate(((5, 5), (4, 1), (5, 0))):
        for method, count, seed in ((one, mine, turn), (two, theirs, 9 + turn)):
            if turn == 2:
                method.begin_round()
            if count:
                method.step_losses(*case.views(count, seed=seed))
            method.after_step()
    want, got = (method.step_losses(*case.views(3, seed=4)) for method in (one, two))
    text = (
        "an image's loss depends on those of earlier steps, but remembers is empty; let it say "
        "what is kept, such as 'a queue of outputs'"
    )
    case.must(torch.equal(want, got), text)


def training_repeats_and_moves_the_weights(case: SSLCase) -> None:
    """To the bit, and stays finite."""
    one, (two,) = case.trained(), call_under_seeds(lambda: case.train(case.build()), 2)
    tensors = everything(one)
    way = "draw in losses from draw_seed(generator) of build, never globally"
    case.require_equal(
        tensors, everything(two), f"two trainings with one seed differ in {{}}; {way}"
    )
    odd = next((n for n, t in tensors.items() if not t.isfinite().all()), None)
    text = f"{odd} is not finite after three steps; add a small number to what losses divide by"
    case.must(odd is None, f"{text} or take the root or logarithm of")
    moved = changed(case.build().shared_state(), one.shared_state())
    text = "training leaves the shared weights as they were; let losses rest on shared_modules"
    case.must(moved, text)


def shared_state_comes_back(case: SSLCase) -> None:
    """Every trained float; a state that does not fit is refused."""
    method, other = case.trained(), case.build(seed=1)
    state, names = method.shared_state(), method.shared_parameters()
    floats = all(t.is_floating_point() for t in state.values())
    text = "shared_state holds tensors that are not floats; keep integers in local_state"
    case.must(floats, text)
    whole = set(names) <= set(state) and len(names) == len(method.trainable())
    text = "shared_state lacks parameters that are trained; name their module in shared_modules"
    case.must(whole, text)
    other.load_shared(state)
    text = "load_shared loses {}; copy every tensor of the state"
    case.require_equal(state, other.shared_state(), text)
    less = {n: t for n, t in state.items() if n != names[0]}
    for what, odd in (("lacks a parameter", less), ("is unknown", state | {"?": state[names[0]]})):
        text = f"load_shared takes a state in which a tensor {what}; raise ValueError"
        case.refused(partial(other.load_shared, odd), ValueError, text)


def local_state_comes_back(case: SSLCase) -> None:
    """A client goes on as if it had stayed, with a method built anew or one that served another
    client, unless it says otherwise; both states are copies, and copied again when restored."""
    method = case.trained()
    states = {"shared": method.shared_state(), "local": method.local_state()}
    before = copy.deepcopy(states)
    others = [case.build()]
    if method.comes_back:
        others.append(case.train(case.build(seed=1, images=9)))
    for other in others:
        other.load_shared(states["shared"])
        other.load_local(states["local"])
        text = "load_local loses {}; copy every tensor that local_state gives"
        case.require_equal(states["local"], other.local_state(), text)
    case.train(method)
    for name, state in before.items():
        text = f"{name}_state is no copy: {{}} moves with training; give t.detach().clone()"
        case.require_equal(state, states[name], text)
    if "reset" in vars(case.spec).values():
        return  # it lets something go at the end of a round, by an option of its own
    for other in others:
        case.train(other)
        text = "load_local keeps what it is given: {} moves with training; copy each tensor"
        case.require_equal(before["local"], states["local"], text)
        # Integer counters of batch norm, which nothing reads, may differ.
        got, want = (one.shared_state() | one.local_state() for one in (method, other))
        text = (
            "local_state lacks something: a client that is restored trains otherwise, see {}; give "
            "all that outlives a step, as buffers or in local_state and load_local"
        )
        case.require_equal(got, want, text)


def renewed_forgets_its_holder(case: SSLCase) -> None:
    """If it can be: whatever client had the method, the next one goes on the same; no weight is
    drawn."""
    method, built = case.trained(), case.build(seed=1, images=9)
    before = method.shared_state()
    if not method.renew(9, torch_rng(1, "test")):
        return
    after = method.shared_state()
    before, after = ({n: s[n] for n in method.shared_parameters()} for s in (before, after))
    text = "renew changes the weight {}, which the next client receives; draw what it does not"
    case.require_equal(before, after, text)
    case.must(
        built.renew(9, torch_rng(1, "test")), "renew is True of one method and not of another"
    )
    for one in (method, built):
        one.load_shared(case.build(seed=2).shared_state())
        one.begin_first_round()
    text = "renew leaves what another client had, see {}; set it anew, or return False"
    for train in (lambda one: one, case.train):
        got, want = (
            # Counters of batch norm, which nothing reads, may differ.
            {n: t for n, t in everything(train(one)).items() if "num_batches" not in n}
            for one in (method, built)
        )
        case.require_equal(want, got, text)


def rounds_begin_with_the_weights_received(case: SSLCase) -> None:
    """Only local state may change."""
    method = case.trained()
    state = method.shared_state()
    method.begin_first_round()
    method.begin_round()
    text = "beginning a round changes the shared {}; change there what is local alone"
    case.require_equal(state, method.shared_state(), text)


def output_losses_are_an_observers(case: SSLCase) -> None:
    """Before and after the bank is filled; they change nothing, and have gradients."""
    method, (a, b) = case.trained().eval(), case.views()
    for filled in (False, True):
        if filled:
            shared = method.shared_state()
            method.fill_bank(case.views(7, seed=4)[0])
            text = "fill_bank changes the shared {}; let it fill the bank alone, under no_grad"
            case.require_equal(shared, method.shared_state(), text)
        before = everything(method)
        losses = method.output_losses(method.encoder(a), method.encoder(b))
        case.losses_of(losses, 5, "output_losses")
        text = "output_losses change {}; an observer calls them: keep nothing there"
        case.require_equal(before, everything(method), text)
        near = torch.allclose(method.probe_losses(a, b), losses, rtol=1e-4, atol=1e-5)
        text = "probe_losses are not the output_losses of the two views; define output_losses alone"
        case.must(near, text)


def notes_are_sentences(case: SSLCase) -> None:
    """And holders of few images can build it."""
    for images in (1, 11, 10**6):
        case.build(images=images)
        notes = case.spec.notes(images)
        case.must(isinstance(notes, list), f"notes are no list: {notes!r}; return [] where none is")
        for one in notes:
            line = in_words(one)
            text = f"a note is no line: {line!r}; write one sentence"
            case.must(bool(line) and "\n" not in line, text)


SSL_CHECKS: tuple[Callable[[SSLCase], None], ...] = (
    declares_views_and_learning_rate, build_draws_from_its_generator,
    losses_are_one_finite_number_an_image, training_repeats_and_moves_the_weights,
    losses_are_per_image_unless_coupled, forgets_images_unless_it_says_so,
    shared_state_comes_back, local_state_comes_back, renewed_forgets_its_holder,
    rounds_begin_with_the_weights_received, output_losses_are_an_observers, notes_are_sentences,
)  # fmt: skip


def check_ssl(ssl: SSL | type[SSL]) -> None:
    """AssertionError unless a self-supervised method keeps the promises of `fedmia.ssl.base`."""
    run(SSL_CHECKS, SSLCase, ssl)
