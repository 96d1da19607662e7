"""Views grant what their threat grants: queries counted, budgets kept, views keyed by content."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks.partcrop import PartCrop
from fedmia.data.images import digests
from fedmia.nets.base import Backbone
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import content_uniforms
from fedmia.ssl.base import State
from fedmia.ssl.moco import MomentumContrast
from fedmia.testing.material import AUGMENT, changed, everything
from fedmia.threat import BlackBox, BudgetError, ClientView, Threat, Trajectory, WhiteBox
from fedmia.threat.signals import Signals
from fedmia.threat.whitebox import split_in_halves
from tests.attacks.loops import naive_views
from tests.attacks.planted import CPU, view_of


def client(method: MomentumContrast, **more: Any) -> ClientView:
    view: ClientView = view_of(method, AUGMENT, ClientView, **more)
    return view


@pytest.fixture
def seen() -> list[int]:
    """Sizes of the batches that passed through the encoders of `counted` and of copies of it."""
    return []


@pytest.fixture
def counted(make_moco: Any, seen: list[int]) -> MomentumContrast:
    method: MomentumContrast = make_moco()
    for encoder in (method.encoder, method.key_encoder):
        first = encoder.backbone.get_submodule("layer1")  # copies have its hook, too
        first.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    return method


@pytest.mark.parametrize(
    ("ask", "cost"),
    [
        (lambda v, x: v.embed(x.float() / 255), 20),
        (lambda v, x: v.embed_views(x, 3), 60),
        (lambda v, x: v.features(x, ("layer2", "encoder")), 20),
        (lambda v, x: v.losses(x, 2, "queue"), 80),
        (lambda v, x: v.losses(x, 2, "held"), 80 + 14),
        (lambda v, x: v.of_weights(v.state()).losses(x, 2, "queue"), 80),
        (lambda v, x: v.of_weights(v.state()).losses(x, 2, "held"), 80 + 14),
        (lambda v, x: v.responses(x, PartCrop().recipe(1), 4), 20 * 5),
        (lambda v, x: v.view_pixels(x, 4), 0),
        (lambda v, x: (v.state(), v.copy_method()), 0),
    ],
    ids=["embed", "views", "features", "losses", "losses-held", "under", "under-held",
         "responses", "pixels", "copy"],
)  # fmt: skip
def test_queries__are_the_images_that_pass_through_the_encoder(
    counted: Any, images: Tensor, held: Tensor, seen: list[int], ask: Any, cost: int
) -> None:
    """A budget too small is refused before anything is computed."""
    assert client(counted).remaining is None
    if cost:
        poor = client(counted, held=held, budget=cost - 1)
        with pytest.raises(BudgetError, match=f"{cost} queries .*, {cost - 1} of {cost - 1} left"):
            ask(poor, images)
        assert (poor.queries, poor.remaining, sum(seen)) == (0, cost - 1, 0)
    view = client(counted, held=held, budget=cost)
    ask(view, images)
    assert view.queries == sum(seen) == cost and view.remaining == 0
    with pytest.raises(BudgetError):
        view.charge(1)


def test_views__belong_to_the_image_not_to_its_place(make_moco: Any, images: Tensor) -> None:
    view = client(make_moco())
    pixels = view.view_pixels(images, 3)
    order = torch.from_numpy(np.random.default_rng(0).permutation(20))
    assert torch.equal(view.view_pixels(images[order], 3), pixels[:, order])
    torch.testing.assert_close(view.view_pixels(images[4:5], 3), pixels[:, 4:5])
    assert torch.equal(view.view_pixels(images, 2), pixels[:2])
    other = BlackBox(make_moco(), AUGMENT, seed=1, device=CPU)
    assert not torch.equal(other.view_pixels(images, 3), pixels)
    u = torch.from_numpy(content_uniforms(images, 0, 3, AUGMENT.draws))
    assert torch.equal(pixels[2], AUGMENT(images.float() / 255, u[:, 2]))


def test_embed_views__naive_twin(make_moco: Any, images: Tensor) -> None:
    method = make_moco()
    view = client(method)
    want = torch.stack(naive_views(method, view.view_pixels(images, 3)))
    torch.testing.assert_close(view.embed_views(images, 3), want, atol=1e-5, rtol=1e-5)


def naive_losses(
    method: MomentumContrast, state: State, held: Tensor | None, pixels: Tensor
) -> Tensor:
    """Mean over pairs of views (2 pairs, N, C, H, W), two forwards a pair, under `state`."""
    model = copy.deepcopy(method)
    model.load_shared(state)
    if held is not None:
        model.fill_bank(held.float() / 255)
    pairs, each = len(pixels) // 2, []
    for p in range(pairs):
        z1, z2 = model.encoder(pixels[p]).detach(), model.encoder(pixels[pairs + p]).detach()
        each.append(model.output_losses(z1, z2))
    return torch.stack(each).mean(dim=0)


@pytest.mark.parametrize("policy", ["keep", "reset"])
@pytest.mark.parametrize("negatives", ["held", "queue"])
def test_losses__mean_over_pairs_of_fixed_views(
    make_moco: Any, textures: Any, held: Tensor, serving: Tensor, negatives: str, policy: str
) -> None:
    """Of more views than are drawn at once; what a client keeps between rounds plays no part."""
    images = textures(300)
    method = make_moco(queue_policy=policy)
    view = client(copy.deepcopy(method), held=held)
    pixels, bank = view.view_pixels(images, 6), serving if negatives == "held" else None
    start = method.shared_state()
    want = naive_losses(method, start, bank, pixels)
    torch.testing.assert_close(view.losses(images, 3, negatives), want, atol=1e-5, rtol=1e-5)
    moved = {n: t + 0.1 for n, t in start.items()}
    far = naive_losses(method, moved, bank, pixels)
    assert not torch.allclose(far, want, atol=1e-3)
    for state, losses in ((moved, far), (start, want), (moved, far)):  # read on a copy
        got = view.of_weights(state).losses(images[3:], 3, negatives)
        torch.testing.assert_close(got, losses[3:], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(view.losses(images, 3, negatives), want, atol=1e-5, rtol=1e-5)


def test_at__shares_rows_by_round_but_not_counts(
    counted: Any, images: Tensor, held: Tensor, seen: list[int]
) -> None:
    """All views of one snapshot read an earlier round's model once; each pays for what it asks."""
    shared = Signals()
    states = {r: {n: t + r / 10 for n, t in counted.shared_state().items()} for r in (1, 2)}

    def view() -> ClientView:
        return client(copy.deepcopy(counted), held=held, signals=shared, received=states)

    one, two = view(), view()
    first = one.at(1).losses(images[:12], 2, "held")
    assert one.queries == sum(seen) == 12 * 4 + 14
    seen.clear()
    rows = two.at(1).losses(images, 2, "held")  # twelve of twenty are known
    assert (two.queries, sum(seen)) == (20 * 4 + 14, 8 * 4 + 14)
    assert torch.equal(rows[:12], first)
    for other in (
        lambda: two.at(2).losses(images, 2, "queue"),
        lambda: two.losses(images, 2, "queue"),
        lambda: two.at(1).losses(images, 3, "queue"),
    ):
        seen.clear()
        other()
        assert seen  # another round, the model itself, more views: computed anew
    with pytest.raises(KeyError):
        two.at(3)


def test_trajectory__is_what_was_noted_of_the_images(make_moco: Any, images: Tensor) -> None:
    calls, none = list[Any](), np.zeros((1, 20))
    want = Trajectory([1], none, none, none)
    view = client(make_moco(), noted=lambda *of: calls.append(of) or want)
    assert view.trajectory(images) is want
    assert calls[0][0] is view and torch.equal(calls[0][1], images)
    with pytest.raises(RuntimeError, match="crafted no update"):
        client(make_moco()).trajectory(images)


def test_features__of_the_plain_images(counted: Any, images: Tensor, seen: list[int]) -> None:
    """One pass serves every layer alone, in any order; each is charged all the same."""
    view = client(counted)
    assert view.layers == ("layer1", "layer2", "layer3", "layer4", "avgpool", "encoder")
    with pytest.raises(InputError, match="layer9.*did you mean"):
        view.features(images, ("layer9",))
    got = view.features(images, view.layers)
    assert tuple(got) == view.layers
    want = counted.encoder.features(images.float() / 255, view.layers)
    for name in view.layers:
        torch.testing.assert_close(got[name], want[name].detach().flatten(1))
    seen.clear()
    for name in reversed(view.layers):
        assert torch.equal(view.features(images[:7], (name,))[name], got[name][:7])
    assert not seen and view.queries == 20 + 7 * len(view.layers)


def test_signals__share_rows_but_not_counts(counted: Any, images: Tensor, seen: list[int]) -> None:
    shared = Signals()
    one = client(counted, signals=shared)
    two = client(counted, signals=shared)
    first = one.embed_views(images[:12], 3)
    assert sum(seen) == 36
    second = two.embed_views(images[4:], 3)  # eight of these rows are known
    assert sum(seen) == 36 + 24
    assert (one.queries, two.queries) == (36, 48)
    assert torch.equal(second[:8], first[4:])
    again = two.embed_views(images[4:].flip(0), 3)
    assert sum(seen) == 60 and two.queries == 96
    assert torch.equal(again.flip(0), second)
    two.embed_views(images[:2], 4)  # the fourth view of two images, and no more
    assert sum(seen) == 62
    poor = client(counted, signals=shared, budget=35)
    with pytest.raises(BudgetError):
        poor.embed_views(images[:12], 3)


def test_outputs__are_all_rows_but_those_of_losses(
    counted: Any, images: Tensor, held: Tensor, seen: list[int]
) -> None:
    """An attacker who holds other images reads outputs again, and computes losses anew."""
    shared = Signals()
    one = client(counted, held=held, signals=shared)

    def read(view: ClientView) -> None:
        view.embed_views(images, 2)
        view.embed_plain(images)
        view.features(images, ("layer4",))

    read(one)
    one.losses(images, 2, "held")
    two = client(counted, held=images[:10], signals=shared.outputs())
    seen.clear()
    read(two)
    assert not seen and two.queries == 20 * 4
    got = two.losses(images, 2, "held")
    want = client(counted, held=images[:10]).losses(images, 2, "held")
    assert seen and torch.equal(got, want)


def test_views__grant_by_class() -> None:
    for cls, lacks in ((BlackBox, "features"), (BlackBox, "state"), (BlackBox, "copy_method"),
                       (WhiteBox, "trajectory"), (WhiteBox, "at"), (BlackBox, "losses"),
                       (ClientView, "bank")):  # fmt: skip
        assert not hasattr(cls, lacks)
    threats = [view.threat for view in (BlackBox, WhiteBox, ClientView)]
    granted = [("black_box", "outsider"), ("white_box", "outsider"), ("white_box", "client")]
    assert threats == [Threat(*words) for words in granted]


def test_model__stays_as_it_is(make_moco: Any, images: Tensor, held: Tensor) -> None:
    method = make_moco(queue=5)
    view, before = client(method, held=held), everything(method)
    view.losses(images, 2, "held")
    moved = {n: t + 0.1 for n, t in view.state().items()}
    view.of_weights(moved).losses(images, 2, "held")
    with torch.no_grad():
        for weight in view.copy_method().parameters():
            weight.add_(1.0)
    for tensor in view.state().values():
        tensor.zero_()
    assert changed(before, everything(method)) is None


def test_held__keys_are_those_of_the_weights_that_read(make_moco: Any, held: Tensor) -> None:
    view = client(make_moco(), held=held)
    other: Any = view.copy_method()
    other.load_shared({n: t + 0.1 for n, t in view.state().items()})
    (first, _), second = split_in_halves(held)
    met: list[tuple[Tensor, Tensor]] = []

    def read(rows: Tensor) -> Tensor:
        met.append((rows, other.queue.clone()))
        return rows

    view.by_negatives(other, "held", held, read)
    rows, queue = met[0]
    assert {digests(held[rows].numpy())[i] for i in range(len(rows))} == second
    keys = F.normalize(other.encoder(first.float() / 255), dim=1)
    torch.testing.assert_close(queue, keys.detach())


@pytest.mark.parametrize("nothing", [None, 0])
def test_held__without_images_is_refused(
    counted: Any, images: Tensor, held: Tensor, seen: list[int], nothing: int | None
) -> None:
    none = None if nothing is None else held[:nothing]
    view = client(counted, held=none)
    for one in (view, view.of_weights(view.state())):
        with pytest.raises(InputError, match="'held': this attacker holds no images of its own"):
            one.losses(images, 2, "held")
    assert view.queries == sum(seen) == 0
    view.losses(images, 2, "queue")


def test_negatives__an_image_is_never_its_own(make_moco: Any, images: Tensor, held: Tensor) -> None:
    """Each meets the half of the images held that it is not in, so all meet as many."""
    view, banks = client(make_moco(), held=held), []
    method: Any = view.copy_method()
    fill = method.fill_bank

    def seen(pixels: Tensor) -> None:
        banks.append(digests(pixels.numpy()))
        fill(pixels)

    method.fill_bank = seen
    asked = torch.cat([images[:5], held])
    names, met = digests(asked.numpy()), {}

    def read(rows: Tensor) -> Tensor:
        met.update({int(r): set(banks[-1]) for r in rows})
        return rows

    rows = view.by_negatives(method, "held", asked, read)
    assert torch.equal(rows, torch.arange(len(asked)))
    assert all(len(met[i]) == len(held) // 2 and names[i] not in met[i] for i in range(len(asked)))
    assert set(banks[0]) | set(banks[1]) == set(digests(held.numpy()))
    assert torch.equal(view.by_negatives(method, "queue", asked, lambda r: r), rows)


def test_negatives__known_images_score_as_others_do(make_moco: Any, textures: Any) -> None:
    """On a model that never saw either, the losses of images held are those of any others."""
    pool = textures(240, seed=4)
    view = client(make_moco(), held=pool[:120])
    losses = view.losses(pool, 2, "held").numpy()
    higher = (losses[:120, None] > losses[None, 120:]).mean()
    assert abs(higher - 0.5) < 3 * np.sqrt(241 / (12 * 120 * 120))


def test_precision__bfloat16_is_near_and_a_row_knows_no_batch(
    make_moco: Any, images: Tensor
) -> None:
    method = make_moco()
    with pytest.raises(InputError, match="unknown precision 'float16'"):
        client(method, precision="float16")
    exact = client(method)
    low = client(method, precision="bfloat16")
    for ask in (
        lambda v, x: v.embed_plain(x),
        lambda v, x: v.embed_views(x, 3, "avgpool").flatten(0, 1),
        lambda v, x: v.features(x, ["layer2"])["layer2"],
        lambda v, x: v.responses(x, PartCrop().recipe(1), 4)[0].flatten(1),
    ):
        want, got = ask(exact, images), ask(low, images)
        assert got.dtype == torch.float32 and not torch.equal(got, want)
        assert F.cosine_similarity(got, want).min() > 0.999
        alone = client(method, precision="bfloat16")
        some = ask(alone, images[5:8])
        rows = len(some) // 3
        torch.testing.assert_close(some, got[5 * rows : 8 * rows], atol=0.02, rtol=0.02)
    torch.testing.assert_close(low.losses(images, 2, "queue"), exact.losses(images, 2, "queue"),
                               atol=0.05, rtol=0.05)  # fmt: skip


class FourPixels(Backbone):
    """Its map is four pixels of the image."""

    layers, width = ("layer1",), 3

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        return {"layer1": F.interpolate(x, size=2)}


@dataclass(frozen=True)
class Dimmed:
    """Four pixels of the image, darker; notes how many pixels it is given at once."""

    pixels: list[int] = field(default_factory=list, compare=False)
    draws: ClassVar[int] = 1

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        self.pixels.append(len(images) * images.shape[2] * images.shape[3])
        return F.interpolate(images, size=2) * uniforms[:, :, None, None]


@pytest.mark.parametrize(("side", "count"), [(1500, 1), (1024, 2), (800, 2), (512, 4)])
def test_memory__is_bounded_by_pixels_not_by_images(textures: Any, side: int, count: int) -> None:
    """One view is drawn at once, two, those that one image lacks, all of an image."""
    images = F.interpolate(textures(count)[:, :1], size=side)
    maps = F.interpolate(images, size=2).flatten(2).float().expand(-1, 3, -1) / 255
    vectors = maps.mean(dim=2)[:, None] * torch.from_numpy(content_uniforms(images, 0, 5, 1))
    dimmed, view = Dimmed(), view_of(FourPixels())
    view.embed_views(images, 2, augmentation=dimmed)
    torch.testing.assert_close(view.embed_views(images, 5, augmentation=dimmed), vectors)
    assert max(dimmed.pixels) <= max(1 << 21, side**2)
    dimmed.pixels.clear()
    products, cosines = view.responses(images, dimmed, 5)
    torch.testing.assert_close(products, vectors @ maps)
    torch.testing.assert_close(cosines, torch.ones(count, 5))
    assert max(dimmed.pixels) <= 1 << 22  # crops are smaller than what they are cut from
