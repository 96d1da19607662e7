"""EncoderMI's baselines: patches, downstream classifiers and raw features, by hand and planted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks._downstream import confidences, downstream_classifier, labelled_images
from fedmia.attacks._fitted import best_threshold
from fedmia.attacks.base import Known, Scores
from fedmia.attacks.baseline import Patch
from fedmia.attacks.baseline_c import Adversarial, BaselineC, Downstream
from fedmia.data.base import Request
from fedmia.data.digits import Digits
from fedmia.data.images import IntArray, digests
from fedmia.data.synthetic import Synthetic
from fedmia.nets.base import Backbone
from fedmia.seeding import rng
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.threat import BlackBox, Labels, Shadow, WhiteBox
from tests.attacks.planted import EXACT, NOBODY, auc_of, chance, fitted, mixing, view_of

GRID = [Patch(row, column, 3, 3) for row in range(3) for column in range(3)]
QUICK = {"epochs": 60, "rate": 1e-3, "batch_size": 32}


class Remembers(Backbone):
    """Betrays stored pixels in the way that `leak` says.

    `patches`: all patches of a stored image give one vector. `loud`: a stored image's vector is
    ten times as long, an adversarial example's too. `sign`: its first entry is 3, of another
    image it is as the rest.
    """

    layers = ("layer1",)

    def __init__(self, stored: Tensor, leak: str, width: int) -> None:
        super().__init__()
        self.stored, self.width, self.leak = stored.flatten(1), width, leak
        self.mix = mixing(width, self.stored.shape[1])

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        far, index = torch.cdist(flat, self.stored, compute_mode=EXACT).min(dim=1)
        known = (far < (0.6 if self.leak == "loud" else 1e-3))[:, None]
        out = (torch.sin(15 * flat) if self.leak == "patches" else flat) @ self.mix.T
        if self.leak == "patches":
            owner = F.one_hot(index // 9 % self.width, self.width).float()
            out = torch.where(known, owner, out)
        elif self.leak == "loud":
            out = torch.where(known, 10 * out, out)
        else:
            out = torch.where(known, F.pad(out[:, 1:], (1, 0), value=3.0), out)
        return {"layer1": out[:, :, None, None]}


def holding(members: Tensor, leak: str, shadows: Any = (), width: int = 12) -> Any:
    scaled = members.float() / 255
    stored = scaled
    if leak == "patches":
        nothing = scaled.new_empty(len(scaled), 0)
        stored = torch.stack([patch(scaled, nothing) for patch in GRID], dim=1).flatten(0, 1)
    return view_of(Remembers(stored, leak, width), Augment(), shadows=shadows)


def build(letter: str, **options: Any) -> Any:
    return registry.build("attack", f"baseline-{letter}", options)


Planted = Callable[..., tuple[BlackBox, Tensor, Any]]


@pytest.fixture
def planted(textures: Callable[..., Tensor]) -> Planted:
    """`planted(leak, width=12)`: a target, the images to score and their truth; the one shadow
    stores images of its own and gives 12 features."""
    pool = textures(240, seed=22)

    def make(leak: str, width: int = 12) -> Any:
        shadow = Shadow(holding(pool[120:180], leak), pool[120:180], pool[180:])
        return holding(pool[:60], leak, [shadow], width), pool[:120], np.repeat([1, 0], 60)

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("letter", "leak", "options"),
    [
        ("a", "loud", QUICK),
        ("c", "loud", {**QUICK, "downstream_images": 100}),
        ("d", "sign", QUICK),
        ("e", "patches", {}),
    ],
)
def test_planted_leak__is_found_through_shadows(
    letter: str, leak: str, options: dict[str, Any], planted: Planted
) -> None:
    view, images, truth = planted(leak)
    attack = fitted(build(letter, **options), view)
    scores = attack.score(view, images)
    assert roc_auc_score(truth, scores) > 0.95
    assert ((scores >= 0) == truth).mean() > 0.9
    # Half of nobody's images, said to be members.
    assert roc_auc_score(np.tile([1, 0], 30), scores[60:]) == chance(30, 30)


# -- Baseline-E


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (3, 1), (3, 5), (1, 7)])
def test_patch__are_disjoint_and_cover_the_image(rows: int, columns: int) -> None:
    """Each patch's borders show as the range of coordinates that it takes from a ramp."""
    down = torch.arange(8.0)[None, None, :, None].expand(1, 1, 8, 8)
    seen = np.zeros((8, 8), int)
    for row in range(rows):
        for column in range(columns):
            patch = Patch(row, column, rows, columns)
            spans = []
            for ramp in (down, down.transpose(2, 3)):
                taken = patch(ramp, torch.empty(1, 0))
                spans.append(slice(int(taken.min()), int(taken.max()) + 1))
            seen[spans[0], spans[1]] += 1
    assert (seen == 1).all()


def test_baseline_e__centre_against_each_other_patch_by_hand(planted: Planted) -> None:
    view, images, truth = planted("sign")
    shadow = view.shadows[0]

    def by_hand(view: BlackBox, images: Tensor) -> list[float]:
        similarities, edges = [], (0, 3, 5, 8)
        for image in images.float() / 255:
            words = []
            for row in range(3):
                for column in range(3):
                    cut = image[:, edges[row] : edges[row + 1], edges[column] : edges[column + 1]]
                    patch = F.interpolate(cut[None], size=(8, 8), mode="bilinear")
                    words.append(view.embed(patch)[0].double())
            cosines = [F.cosine_similarity(words[4], w, dim=0) for w in words[:4] + words[5:]]
            similarities.append(float(sum(cosines)) / 8)
        return similarities

    attack = fitted(build("e"), view)
    assert view.queries == 0
    got = attack.score(view, images)
    assert view.queries == 9 * len(images)
    both, known = Known(shadow.members, shadow.nonmembers).both()
    threshold = best_threshold(np.array(by_hand(shadow.view, both)), known)
    np.testing.assert_allclose(got, np.array(by_hand(view, images)) - threshold, atol=1e-5)


def test_baseline_e__needs_a_centre_and_no_more_patches_than_pixels(planted: Planted) -> None:
    for rows, columns in ((1, 1), (2, 3), (3, 4)):
        with pytest.raises(InputError, match=f"{rows}x{columns}, must be odd"):
            build("e", rows=rows, columns=columns)
    view, _, _ = planted("sign")
    with pytest.raises(InputError, match="8 pixels cannot be divided into 9 patches"):
        fitted(build("e", columns=9), view)


# -- Baseline-A


def test_baseline_a__confidences_by_hand(planted: Planted) -> None:
    view, images, _ = planted("loud")
    attack = fitted(build("a", downstream_images=200, epochs=1), view)
    assert view.queries == 200  # the task's images, once
    attack.score(view, images)
    assert view.queries == 200 + len(images)
    task, labels = labelled_images("synthetic", None, 200, (3, 8, 8), view.seed)
    scaler = StandardScaler()
    features = scaler.fit_transform(view.embed_plain(task, "avgpool").double().numpy())
    model = LogisticRegression(max_iter=1000).fit(features, labels)
    plain = scaler.transform(view.embed_plain(images, "avgpool").double().numpy())
    want = [sorted(row, reverse=True) for row in model.predict_proba(plain)]
    np.testing.assert_allclose(attack.inputs(view, images), want, atol=1e-6)
    assert model.score(features, labels) > 0.3  # ten classes: the task is learned at all


def test_downstream__is_in_nobodys_data() -> None:
    task, _ = labelled_images("synthetic", None, 50, (3, 8, 8), seed=0)
    same_seed = Synthetic(images=2000, pixels=8).load(Request(None, None, None, 0)).images
    assert not {x.tobytes() for x in task.numpy()} & {x.tobytes() for x in same_seed}
    again, _ = labelled_images("synthetic", None, 50, (3, 8, 8), seed=0)
    other, _ = labelled_images("synthetic", None, 50, (3, 8, 8), seed=1)
    assert torch.equal(task, again) and not torch.equal(task, other)


def test_downstream__digits_in_the_encoders_shape() -> None:
    source = Digits().load(Request(None, None, None, 0))
    images, labels = labelled_images("digits", None, 30, (1, 8, 8), seed=0)
    where = {x.tobytes(): y for x, y in zip(source.images, source.class_labels(), strict=True)}
    assert [where[x.tobytes()] for x in images.numpy()] == labels.tolist()
    grey, _ = labelled_images("digits", None, 30, (3, 8, 8), seed=0)
    assert all(torch.equal(grey[:, c], images[:, 0]) for c in range(3))
    assert labelled_images("digits", None, 9999, (1, 12, 12), 0)[0].shape == (1797, 1, 12, 12)


def test_downstream__file_of_ones_own(tmp_path: Path) -> None:
    pixels = rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    path = tmp_path / "own.npz"
    np.savez(path, x=pixels, y=np.arange(20) % 2)
    images, labels = labelled_images("synthetic", str(path), 12, (3, 8, 8), seed=0)
    assert images.shape == (12, 3, 8, 8) and set(labels) == {"0", "1"}
    luma, _ = labelled_images("synthetic", str(path), 12, (1, 8, 8), seed=0)
    weights = torch.tensor([0.2989, 0.587, 0.114])[:, None, None]
    assert ((images * weights).sum(1) - luma[:, 0].float()).abs().max() <= 1
    np.savez(path, x=pixels, y=np.zeros(20, int))
    with pytest.raises(InputError, match=r"own.npz: 12 images of a single class"):
        labelled_images("synthetic", str(path), 12, (3, 8, 8), seed=0)


# -- Baseline-D


def test_baseline_d__reads_the_plain_vector_as_it_is(planted: Planted) -> None:
    view, images, _ = planted("sign")
    plain = view.embed_plain(images[:5], "avgpool").double()
    torch.testing.assert_close(build("d").inputs(view, images[:5]), plain)


def test_baseline_d__features_of_other_lengths_are_refused(planted: Planted) -> None:
    view, images, _ = planted("sign", width=10)
    attack = fitted(build("d", epochs=1), view)
    with pytest.raises(InputError, match="length 10 at 'avgpool', but the .* have 12"):
        attack.score(view, images)
    wide, _, _ = planted("sign")
    shadow = dataclasses.replace(view.shadows[0], view=view)
    mixed = holding(images, "sign", [*wide.shadows, shadow])
    with pytest.raises(InputError, match=r"features of lengths \[10, 12\]"):
        attack.fit(mixed, NOBODY, rng(0))


# -- Baseline-C


@pytest.mark.parametrize(("classes", "layer"), [(2, "avgpool"), (4, "encoder")])
def test_adversarial__network_is_the_encoder_and_the_classifier(
    classes: int, layer: str, make_moco: Any, textures: Callable[..., Tensor]
) -> None:
    images = textures(30)
    view = view_of(make_moco(), Augment())
    rows = view.embed_plain(images, layer)
    model = downstream_classifier(rows, np.arange(30) % classes)
    network = Downstream(view.copy_method().encoder, model, layer)
    assert network.classes == classes
    got = network(images.float() / 255).softmax(dim=1)
    np.testing.assert_allclose(got, confidences(model, rows), atol=1e-4)


def test_adversarial__moves_towards_its_class_and_stays_near(
    make_moco: Any, textures: Callable[..., Tensor]
) -> None:
    images = textures(140)  # more than one batch of gradients
    view = view_of(make_moco(), Augment())
    model = downstream_classifier(view.embed_plain(images), np.arange(140) % 3)
    network = Downstream(view.copy_method().encoder, model, "encoder")
    pixels, nothing = images.float() / 255, torch.empty(140, 0)
    before = network(pixels).log_softmax(dim=1)
    for target in range(3):
        craft = Adversarial(network.digest(), target, 8 / 255, 7, 2 / 255, network)
        with torch.no_grad():  # as a view calls it
            crafted_pixels = craft(pixels, nothing)
        assert (crafted_pixels - pixels).abs().max() <= 8 / 255 + 1e-6
        assert crafted_pixels.min() >= 0 and crafted_pixels.max() <= 1
        after = network(crafted_pixels).log_softmax(dim=1)
        assert (after[:, target] > before[:, target]).float().mean() > 0.95
        one = pixels[:1].clone()
        for _ in range(7):  # one image by itself
            one = one.requires_grad_()
            loss = -network(one).log_softmax(dim=1)[0, target]
            one = one.detach() - 2 / 255 * torch.autograd.grad(loss, one)[0].sign()
            one = torch.clamp(one, pixels[:1] - 8 / 255, pixels[:1] + 8 / 255).clamp(0, 1)
        torch.testing.assert_close(crafted_pixels[:1], one, atol=1e-6, rtol=0)
    again = Adversarial(network.digest(), 2, 8 / 255, 7, 2 / 255, network)
    assert hash(again) == hash(craft) and again == craft
    assert again != dataclasses.replace(craft, target=1)


class Telling(BaselineC):
    """Keeps what it decides on."""

    def decide(self, fitted: Any, inputs: Tensor) -> Scores:
        self.answers = inputs
        return super().decide(fitted, inputs)


def test_baseline_c__answers_of_the_target_to_examples_of_the_shadow(
    make_moco: Any, shadows: Any, textures: Callable[..., Tensor]
) -> None:
    images = textures(6)
    view = view_of(make_moco(), Augment(), BlackBox, shadows=shadows)
    attack = fitted(Telling(downstream_images=40, epochs=1), view)
    assert view.queries == 40
    attack.score(view, images)
    assert view.queries == 40 + 10 * 6 and attack.answers.shape == (6, 10 * 10)
    task, labels = labelled_images("synthetic", None, 40, (3, 8, 8), view.seed)
    of_shadow = downstream_classifier(shadows[0].view.embed_plain(task, "avgpool"), labels)
    of_target = downstream_classifier(view.embed_plain(task, "avgpool"), labels)
    network = Downstream(shadows[0].view.copy_method().encoder, of_shadow, "avgpool")
    for t, got in enumerate(attack.answers.split(10, dim=1)):
        craft = Adversarial(b"", t, 8 / 255, 7, 2 / 255, network)
        crafted = craft(images.float() / 255, torch.empty(6, 0))
        want = confidences(of_target, view.embed(crafted, "avgpool"))
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_baseline_c__needs_the_shadows_weights(textures: Any, make_moco: Any) -> None:
    images = textures(8)
    shadow = Shadow(view_of(make_moco(), kind=BlackBox), images[:4], images[4:])
    with pytest.raises(InputError, match="baseline-c: needs shadow encoders whose weights"):
        fitted(build("c"), view_of(make_moco(), shadows=[shadow]))


# -- Baseline-B


GENTLE = Augment(
    crop_min=0.9, ratio_min=1, ratio_max=1, flip=0.5, brightness=0.05, contrast=0.05,
    saturation=0, hue=0, jitter_p=1, gray_p=0,
)  # fmt: skip


def coloured(count: int, seed: int) -> Tensor:
    """uint8 (count, 3, 8, 8): one colour each, with a fine texture."""
    draw = rng(seed, "colours")
    pixels = draw.uniform(0.2, 0.8, (count, 3, 1, 1)) + draw.normal(0, 0.05, (count, 3, 8, 8))
    return torch.from_numpy((np.clip(pixels, 0, 1) * 255).astype(np.uint8))


def strongest(images: Tensor) -> IntArray:
    return images.float().mean(dim=(2, 3)).argmax(dim=1).numpy()


def named(images: Tensor) -> Any:
    return strongest(images).astype(str)


class Surer(Backbone):
    """The class of a stored image stands out in its vector; another's is lost in its texture."""

    layers = ("layer1",)
    width = 12

    def __init__(self, stored: Tensor) -> None:
        super().__init__()
        self.stored = self.colour(stored.float() / 255)
        self.mix = mixing(self.width, 192) * 192**0.5

    @staticmethod
    def colour(x: Tensor) -> Tensor:
        return x[..., 2:6, 2:6].mean(dim=(2, 3))

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        own = self.colour(x)
        stored = (torch.cdist(own, self.stored).min(dim=1).values < 0.04)[:, None]
        shown = F.one_hot(own.argmax(dim=1), self.width).float()
        noise = torch.sin(9 * x.flatten(1) @ self.mix.T)  # of every pixel: each view its own
        vectors = torch.where(stored, 6 * shown, 0.8 * shown + noise)
        return {"layer1": vectors[:, :, None, None]}


class Noting(WhiteBox):
    """Notes which plain images it is asked for."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.requests = list[set[bytes]]()

    def embed_plain(self, images: Tensor, layer: str = "encoder") -> Tensor:
        self.requests.append(set(digests(images.numpy())))
        return super().embed_plain(images, layer)


def knowing(members: Tensor, **more: Any) -> Any:
    return view_of(Surer(members), GENTLE, Noting, **more)


@pytest.fixture
def labelled() -> tuple[WhiteBox, Tensor, Tensor]:
    """A target with two shadows, its members, and other images."""
    pool = coloured(240, seed=3)
    labels = Labels([(pool, named(pool))])
    shadows = [
        Shadow(knowing(some[:60], labels=labels), some[:60], some[60:])
        for some in (pool[120:], pool[120:].flip(0))
    ]
    return knowing(pool[:60], shadows=shadows, labels=labels), pool[:60], pool[60:120]


def test_baseline_b__finds_members_by_what_is_right(labelled: Any) -> None:
    view, members, others = labelled
    assert auc_of(build("b", **QUICK), view, NOBODY, members, others) > 0.9


def test_baseline_b__vector_by_hand(labelled: Any) -> None:
    """b_0 is the image's, b_i its i-th view's; the task is half of the first shadow's rest."""
    view, members, _ = labelled
    attack = fitted(build("b", **QUICK | {"views": 4}), view)
    assert view.queries == 30  # the target's own task
    rest = view.shadows[0].nonmembers
    ranked = sorted(range(60), key=digests(rest.numpy()).__getitem__)
    task = rest[ranked[:30]]
    scaler = StandardScaler()
    features = scaler.fit_transform(view.embed_plain(task, "avgpool").double().numpy())
    model = LogisticRegression(max_iter=1000).fit(features, strongest(task))
    want = []
    for image in members[:7]:
        row = [view.embed_plain(image[None], "avgpool")[0]]
        row += list(view.embed_views(image[None], 4, "avgpool")[0])
        said = model.predict(scaler.transform(torch.stack(row).double().numpy()))
        want.append((said == strongest(image[None])[0]).astype(float))
    view.queries = 0
    np.testing.assert_array_equal(attack.inputs(view, members[:7]), want)
    assert view.queries == 7 * 5


@pytest.mark.parametrize("filed", [False, True])
def test_baseline_b__task_is_apart_from_what_is_fitted_on(
    labelled: Any, tmp_path: Path, filed: bool
) -> None:
    """That of a file is the same for all, and leaves out the shadows' images."""
    view, _, _ = labelled
    first, second = view.shadows
    own = coloured(30, seed=9)
    mixed = torch.cat([own, first.members[:9], second.nonmembers[:9]])
    np.savez(tmp_path / "task.npz", x=mixed.permute(0, 2, 3, 1).numpy(), y=strongest(mixed))
    file = {"downstream_file": str(tmp_path / "task.npz")} if filed else {}
    fitted(build("b", share=0.25, epochs=1, **file), view)
    assert view.requests == first.view.requests[:1]
    for shadow in (first, second):
        task, images = shadow.view.requests
        assert not task & images and len(images) == (120 if filed else 90)
        assert len(images & set(digests(shadow.members.numpy()))) == len(images) / 2
        assert task == set(digests(own.numpy())) if filed else len(task) == 15
    assert view.queries == (30 if filed else 15)


def test_baseline_b__needs_labels(labelled: Any) -> None:
    view, members, _ = labelled
    bare = knowing(members, shadows=view.shadows)
    attack = fitted(build("b", epochs=1), bare)
    with pytest.raises(InputError, match="true classes, and 60 of 60 images have none"):
        attack.score(bare, members)
    shadow = view.shadows[0]
    unlabelled = Shadow(knowing(shadow.members), shadow.members, shadow.nonmembers)
    with pytest.raises(InputError, match="true classes, and 30 of 30 images have none"):
        attack.fit(knowing(members, shadows=[unlabelled]), NOBODY, rng(0, "fit"))


def test_labels__one_class_is_none_and_unions_prefer_the_other(
    textures: Callable[..., Tensor],
) -> None:
    images, names = textures(6), np.array(list("abcdef"))
    assert Labels([(images, names)]).of(images[3:]).tolist() == list("def")
    with pytest.raises(InputError, match="6 of 6 images have none"):
        Labels([(images, np.array(["a"] * 6))]).of(images)
    other = np.array(["dog", "b", "c"])
    both = Labels([(images[:4], names[:4])]) | Labels([(images[3:], other)])
    assert both.of(images).tolist() == ["a", "b", "c", "dog", "b", "c"]
