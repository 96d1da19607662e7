"""Views grant what their threat grants: queries counted, budgets kept, views keyed by content."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.errors import InputError
from fedmia.ssl.augment import Augment, content_uniforms
from fedmia.ssl.base import Encoder
from fedmia.threat import (
    ACCESS,
    VANTAGE,
    BlackBox,
    BudgetError,
    ClientView,
    Signals,
    Threat,
    WhiteBox,
    require,
)

CPU = torch.device("cpu")
AUGMENT = Augment(hue=0.1)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the batches that pass through any encoder, copies included."""
    sizes: list[int] = []
    normalise = Encoder.normalise

    def counted(self: Encoder, pixels: Tensor) -> Tensor:
        if bool(pixels.any()):  # `features` asks for widths with one black image: no query
            sizes.append(len(pixels))
        return normalise(self, pixels)

    monkeypatch.setattr(Encoder, "normalise", counted)
    return sizes


def test_covers__is_the_product_order() -> None:
    threats = [Threat(a, v) for a in ACCESS for v in VANTAGE]
    for held in threats:
        for needs in threats:
            enough = ACCESS.index(held.access) >= ACCESS.index(needs.access)
            near = VANTAGE.index(held.vantage) >= VANTAGE.index(needs.vantage)
            assert held.covers(needs) == (enough and near)
            assert held.covers(held)
    assert not Threat("black_box", "client").covers(Threat("white_box", "outsider"))
    assert not Threat("white_box", "outsider").covers(Threat("black_box", "client"))


def test_threat__refuses_unknown_words() -> None:
    for access, vantage in (("grey_box", "client"), ("white_box", "insider")):
        with pytest.raises(ValueError, match="no such threat"):
            Threat(access, vantage)


def test_require__names_attack_need_and_holding() -> None:
    held, needs = Threat("white_box", "outsider"), Threat("white_box", "client")
    require(needs, held, "x")
    with pytest.raises(InputError, match="'x' needs white_box access as client.*as outsider"):
        require(held, needs, "x")


@pytest.mark.parametrize(
    ("ask", "cost"),
    [
        (lambda v, x: v.embed(x.float() / 255), 20),
        (lambda v, x: v.embed_views(x, 3), 60),
        (lambda v, x: v.features(x, ("layer2", "encoder")), 20),
        (lambda v, x: v.losses(x, 2), 80),
        (lambda v, x: v.losses_under([v.state()] * 3, x, 2), 240),
        (lambda v, x: v.bank(), 0),
        (lambda v, x: v.view_pixels(x, 4), 0),
        (lambda v, x: (v.state(), v.copy_method()), 0),
    ],
    ids=["embed", "views", "features", "losses", "under", "bank", "pixels", "copy"],
)
def test_queries__are_the_images_that_pass_through_the_encoder(
    make_moco: Any, images: Tensor, seen: list[int], ask: Any, cost: int
) -> None:
    view = ClientView(make_moco(), AUGMENT, seed=0, device=CPU)
    ask(view, images)
    assert view.queries == sum(seen) == cost
    assert view.remaining is None


@pytest.mark.parametrize("budget", [59, 60])
def test_budget__is_refused_before_anything_is_computed(
    make_moco: Any, images: Tensor, seen: list[int], budget: int
) -> None:
    view = ClientView(make_moco(), AUGMENT, seed=0, device=CPU, budget=budget)
    asks = [
        lambda: view.embed_views(images, 3),
        lambda: view.losses(images[:15], 2),
        lambda: view.losses_under([view.state()] * 2, images[:15], 1),
        lambda: view.features(images.repeat(3, 1, 1, 1), ("avgpool",)),
        lambda: view.embed(images.repeat(3, 1, 1, 1).float()),
    ]
    for ask in asks:
        view.queries = 0
        seen.clear()
        if budget == 59:
            with pytest.raises(BudgetError, match="60 queries asked for, 59 of 59 left"):
                ask()
            assert (view.queries, view.remaining, sum(seen)) == (0, 59, 0)
        else:
            ask()
            assert (view.queries, view.remaining) == (60, 0)
            with pytest.raises(BudgetError):
                view.charge(1)


def test_views__belong_to_the_image_not_to_its_place(make_moco: Any, images: Tensor) -> None:
    view = BlackBox(make_moco(), AUGMENT, seed=0, device=CPU)
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
    view = BlackBox(method, AUGMENT, seed=0, device=CPU)
    got = view.embed_views(images, 3)
    assert got.shape == (20, 3, 8)
    pixels = view.view_pixels(images, 3)
    for i in (0, 7, 19):
        for v in range(3):
            want = method.encoder(pixels[v, i][None])[0].detach()
            torch.testing.assert_close(got[i, v], want, atol=1e-5, rtol=1e-5)


def test_losses__mean_over_pairs_of_fixed_views(make_moco: Any, images: Tensor) -> None:
    method = make_moco()
    view = ClientView(method, AUGMENT, seed=0, device=CPU)
    pixels = view.view_pixels(images, 6)
    each = [method.probe_losses(pixels[p], pixels[3 + p]).detach() for p in range(3)]
    want = torch.stack(each).mean(dim=0)
    torch.testing.assert_close(view.losses(images, 3), want, atol=1e-5, rtol=1e-5)
    moved = {n: t + 0.1 for n, t in method.shared_state().items()}
    rows = view.losses_under([moved, view.state()], images, 3)
    torch.testing.assert_close(rows[1], want, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(rows[0], want)
    view.losses_under([moved], images, 3)  # read on a copy: the model itself stays
    torch.testing.assert_close(view.losses(images, 3), want, atol=1e-5, rtol=1e-5)


def test_features__of_the_plain_images(make_moco: Any, images: Tensor) -> None:
    method = make_moco()
    view = WhiteBox(method, AUGMENT, seed=0, device=CPU)
    wanted = ("encoder", "layer3", "avgpool")
    got = view.features(images, wanted)
    assert tuple(got) == wanted
    want = method.encoder.features(images.float() / 255, wanted)
    for name in wanted:
        torch.testing.assert_close(got[name], want[name].detach().flatten(1))
    with pytest.raises(InputError, match="layer9.*did you mean"):
        view.features(images, ("layer9",))
    assert view.layers == ("layer1", "layer2", "layer3", "layer4", "avgpool", "encoder")


def test_signals__share_rows_but_not_counts(
    make_moco: Any, images: Tensor, seen: list[int]
) -> None:
    method, shared = make_moco(), Signals()
    one = WhiteBox(method, AUGMENT, seed=0, device=CPU, signals=shared)
    two = WhiteBox(method, AUGMENT, seed=0, device=CPU, signals=shared)
    first = one.embed_views(images[:12], 3)
    assert sum(seen) == 36
    second = two.embed_views(images[4:], 3)  # eight of these rows are known
    assert sum(seen) == 36 + 24
    assert (one.queries, two.queries) == (36, 48)
    assert torch.equal(second[:8], first[4:])
    again = two.embed_views(images[4:].flip(0), 3)
    assert sum(seen) == 60 and two.queries == 96
    assert torch.equal(again.flip(0), second)
    two.embed_views(images[:2], 4)  # another signal
    assert sum(seen) == 68


def test_signals__keep_the_budget(make_moco: Any, images: Tensor) -> None:
    shared, method = Signals(), make_moco()
    BlackBox(method, AUGMENT, seed=0, device=CPU, signals=shared).embed_views(images, 2)
    poor = BlackBox(method, AUGMENT, seed=0, device=CPU, signals=shared, budget=39)
    with pytest.raises(BudgetError):
        poor.embed_views(images, 2)


def test_copies__are_the_attackers_own(make_moco: Any, images: Tensor) -> None:
    method = make_moco()
    view = WhiteBox(method, AUGMENT, seed=0, device=CPU)
    before = method.shared_state()
    with torch.no_grad():
        for weight in view.copy_method().parameters():
            weight.add_(1.0)
    for tensor in view.state().values():
        tensor.zero_()
    assert all(torch.equal(t, before[n]) for n, t in method.shared_state().items())


def test_views__grant_by_class() -> None:
    for cls, lacks in ((BlackBox, "features"), (BlackBox, "state"), (BlackBox, "copy_method"),
                       (WhiteBox, "losses_under"), (BlackBox, "losses")):  # fmt: skip
        assert not hasattr(cls, lacks)
    assert BlackBox.threat == Threat("black_box", "outsider")
    assert WhiteBox.threat == Threat("white_box", "outsider")
    assert ClientView.threat == Threat("white_box", "client")


def test_bank__is_the_holders_own_queue(make_moco: Any) -> None:
    method = make_moco(queue=5)
    bank = BlackBox(method, AUGMENT, seed=0, device=CPU).bank()
    assert torch.equal(bank, method.queue)
