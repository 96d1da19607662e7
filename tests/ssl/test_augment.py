"""The batched augmentation against torchvision, operation by operation and in distribution."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, kstest
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from fedmia.settings.errors import InputError
from fedmia.ssl import augment
from fedmia.ssl import pixel_operations as ops
from fedmia.ssl.augment import ATTEMPTS, Augment, content_uniforms
from fedmia.ssl.moco import MoCo, MoCoV2

torch.set_num_threads(1)
TOLERANCE = 1e-5
# No crop, and no flip, jitter or gray unless asked for.
STILL = {"crop_min": 1.0, "ratio_min": 1.0, "ratio_max": 1.0, "flip": 0.0, "jitter_p": 0.0,
         "gray_p": 0.0}  # fmt: skip
EVERYTHING = Augment(hue=0.1, gray_p=0.3, blur_p=0.5, solarize_p=0.3)


def pictures(count: int, channels: int, size: int, seed: int = 0) -> torch.Tensor:
    """Smooth images with some saturated and some gray pixels, where hue has its corner cases."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, channels, 4, 4, generator=generator) * 1.6 - 0.3
    fine = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bilinear").clamp(0, 1)
    fine[:, :, :2, :2] = fine[:, :1, :2, :2]
    return fine


def uniforms(count: int, seed: int = 1, draws: int = Augment().draws) -> torch.Tensor:
    return torch.rand(count, draws, generator=torch.Generator().manual_seed(seed))


def planes(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format)


def images(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("size", [8, 28, 33])
def test_resized_crop__equals_torchvision(size: int) -> None:
    x = pictures(12, 3, size)
    boxes = Augment().boxes(uniforms(12)[:, : 2 * ATTEMPTS + 2], size, size)
    boxes[0] = torch.tensor([0, 0, size, size])
    boxes[1] = torch.tensor([size - 1, size - 1, 1, 1])
    flips = torch.arange(12) % 2 == 1
    out = ops.resized_crop(x, boxes, flips)
    for image, box, flip, got in zip(x, boxes, flips, images(out), strict=True):
        box = [int(v) for v in box]
        want = tv.resized_crop(image, *box, size=[size, size], antialias=True)
        close(got, tv.horizontal_flip(want) if flip else want)


@pytest.mark.parametrize("size", [8, 32, 64])
def test_blur__equals_torchvision(size: int) -> None:
    x, sigma = pictures(8, 3, size), torch.linspace(0.1, 2, 8)
    taps = ops.blur_size(size)
    want = [
        tv.gaussian_blur(i, [taps, taps], [float(s)] * 2) for i, s in zip(x, sigma, strict=True)
    ]
    close(images(ops.gaussian_blur(planes(x), sigma)), torch.stack(want))


def test_blur_size__is_odd_and_a_tenth_of_the_side() -> None:
    assert [ops.blur_size(s) for s in (8, 32, 64, 224)] == [3, 3, 7, 23]


TORCHVISION_STEPS = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)


def test_hue_shift__of_nothing_or_a_whole_turn_is_the_image() -> None:
    x = pictures(4, 3, 8)
    for turns in (0.0, 1.0):
        turned = planes(x)
        ops.hue_shift_(turned, torch.full((4,), turns))
        close(images(turned), x)


def by_hand(augmentation: Augment, image: torch.Tensor, row: list[float]) -> torch.Tensor:
    """One view of one image through torchvision's functions, the uniforms read one by one."""
    size, row = image.shape[-1], iter(row)
    done = augmentation.operations or (
        "crop",
        "flip",
        "jitter",
        "gray",
        "blur",
        "solarize",
        "rotation",
    )
    areas = [next(row) for _ in range(ATTEMPTS)]
    ratios = [next(row) for _ in range(ATTEMPTS)]
    down, right = next(row), next(row)
    flip, jitter, gray, blur, solar = (next(row) for _ in range(5))
    amounts, keys, sigma = [next(row) for _ in range(4)], [next(row) for _ in range(4)], next(row)
    low, high = math.log(augmentation.ratio_min), math.log(augmentation.ratio_max)
    box = (0, 0, size, size)
    for area, ratio in zip(areas, ratios, strict=True):
        pixels = (
            size
            * size
            * (augmentation.crop_min + area * (augmentation.crop_max - augmentation.crop_min))
        )
        aspect = math.exp(low + ratio * (high - low))
        w, h = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
        if 0 < w <= size and 0 < h <= size:
            if "crop" in done:
                box = (int(down * (size - h + 1)), int(right * (size - w + 1)), h, w)
            break
    x = tv.resized_crop(image, *box, size=[size, size], antialias=True)
    if "jitter" in done and jitter < augmentation.jitter_p:
        strengths = (augmentation.brightness, augmentation.contrast, augmentation.saturation)
        factors = [
            max(0, 1 - s) + a * (1 + s - max(0, 1 - s))
            for s, a in zip(strengths, amounts, strict=False)
        ]
        factors.append((2 * amounts[3] - 1) * augmentation.hue)
        for step in sorted(range(4), key=lambda s: keys[s]):
            x = TORCHVISION_STEPS[step](x, factors[step])
    if "gray" in done and gray < augmentation.gray_p:
        x = tv.rgb_to_grayscale(x, num_output_channels=x.shape[0])
    if "blur" in done and blur < augmentation.blur_p:
        width = augmentation.blur_sigma_max - augmentation.blur_sigma_min
        x = tv.gaussian_blur(
            x, [ops.blur_size(size)] * 2, [augmentation.blur_sigma_min + sigma * width]
        )
    if "solarize" in done and solar < augmentation.solarize_p:
        x = tv.solarize(x, 0.5)
    x = tv.horizontal_flip(x) if "flip" in done and flip < augmentation.flip else x
    if "rotation" in done and augmentation.rotation:
        x = tv.rotate(x, (2 * next(row) - 1) * augmentation.rotation)
    return x


# Of the targets of EncoderMI's Fig. 3, from the blur alone to all five.
FIG_3 = [("blur", "gray", "crop", "flip", "jitter")[:n] for n in (1, 3, 5)]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "augmentation",
    [
        EVERYTHING,
        Augment(),
        Augment(hue=0.0, saturation=1.5),
        *(replace(EVERYTHING, operations=done) for done in FIG_3),
        Augment(rotation=180.0),
        replace(EVERYTHING, rotation=40.0, operations=("gray", "rotation")),
        replace(EVERYTHING, rotation=40.0, operations=("gray",)),
    ],
)
def test_augment__equals_torchvision_image_by_image(augmentation: Augment, channels: int) -> None:
    x, u = pictures(72, channels, 16), uniforms(72, draws=augmentation.draws)
    got = augmentation(x, u)
    want = torch.stack([by_hand(augmentation, i, r.tolist()) for i, r in zip(x, u, strict=True)])
    # Solarizing and rounding a box are steps: a pixel at the threshold may fall on either side.
    wrong = ((got - want).abs() > TOLERANCE).float().mean()
    # So is the nearest pixel of a rotation.
    assert wrong <= (
        2e-3
        if augmentation.solarize_p and not augmentation.operations or augmentation.rotation
        else 0
    )


def test_rotate__known_answers() -> None:
    x = pictures(4, 3, 9)
    quarter, half = (ops.rotate(planes(x), torch.full((4,), a)) for a in (90.0, 180.0))
    assert torch.equal(images(quarter), x.rot90(1, (2, 3)))
    assert torch.equal(images(half), x.flip((2, 3)))
    assert torch.equal(images(ops.rotate(planes(x), torch.zeros(4))), x)
    tilted = images(ops.rotate(planes(torch.ones(1, 1, 9, 9)), torch.tensor([45.0])))
    assert tilted[0, 0, 0, 0] == 0 and tilted[0, 0, 4, 4] == 1  # black corners, as in Fig. 6
    wide = pictures(1, 3, 9)[..., 2:7, :]
    want = tv.rotate(wide[0], 30.0)
    assert torch.equal(images(ops.rotate(planes(wide), torch.tensor([30.0])))[0], want)


def test_rotation__draws_after_the_others_and_last() -> None:
    x, turned = pictures(6, 3, 8), replace(EVERYTHING, rotation=180.0)
    u = uniforms(6, draws=turned.draws)
    u[:, -1] = 0.75  # a quarter turn
    assert torch.equal(turned(x, u), EVERYTHING(x, u[:, :-1]).rot90(1, (2, 3)))


def statistics(views: torch.Tensor) -> np.ndarray:
    """Numbers (9, N) of (N, 3, H, W), each touched by another stage of the recipe."""
    flat, half = views.flatten(2), views[..., : views.shape[-1] // 2]
    rough = views.diff(n=2, dim=3).std((1, 2, 3)) / (views.std((1, 2, 3)) + 0.01)
    columns = [
        flat.mean((1, 2)), flat.std((1, 2)), flat[:, 0].mean(1), flat[:, 2].mean(1),
        views[:, 1, 0, 0], views[:, 1, 7, 7], half.mean((1, 2, 3)) - views.mean((1, 2, 3)), rough,
        (views.amax(1) - views.amin(1)).mean((1, 2)),
    ]  # fmt: skip
    return torch.stack(columns).numpy()


@pytest.mark.slow
def test_augment__agrees_with_torchvision_in_distribution() -> None:
    """Two-sample KS on nine statistics, p > 1e-3 for each; a wrong recipe is far below."""
    # A ramp from left to right makes flips visible, noise makes blurs so.
    noise = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(6))
    image = (pictures(1, 3, 16, seed=5) + torch.linspace(0, 1, 16) + noise) / 3
    one = EVERYTHING
    theirs = v2.Compose(
        [
            v2.RandomResizedCrop(16, (one.crop_min, one.crop_max)),
            v2.RandomApply(
                [v2.ColorJitter(one.brightness, one.contrast, one.saturation, one.hue)],
                one.jitter_p,
            ),
            v2.RandomGrayscale(one.gray_p),
            v2.RandomApply(
                [v2.GaussianBlur(ops.blur_size(16), (one.blur_sigma_min, one.blur_sigma_max))],
                one.blur_p,
            ),
            v2.RandomSolarize(0.5, one.solarize_p),
            v2.RandomHorizontalFlip(one.flip),
        ]
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        reference = statistics(torch.stack([theirs(image[0]) for _ in range(1000)]))

    def least_p_value(augmentation: Augment) -> float:
        ours = statistics(augmentation(image.expand(2000, -1, -1, -1), uniforms(2000)))
        return min(ks_2samp(a, b).pvalue for a, b in zip(ours, reference, strict=True))

    assert least_p_value(EVERYTHING) > 1e-3
    for wrong in ({"crop_min": 0.4}, {"gray_p": 0.45}, {"flip": 0.3}, {"blur_p": 0.2},
                  {"brightness": 0.2}, {"solarize_p": 0.1}):  # fmt: skip
        assert least_p_value(replace(EVERYTHING, **wrong)) < 1e-5, wrong


@pytest.mark.parametrize("scale", [(0.2, 1.0), (0.05, 0.3)])
def test_boxes__agree_with_torchvision_in_distribution(scale: tuple[float, float]) -> None:
    image = torch.zeros(3, 32, 32)
    theirs = v2.RandomResizedCrop(32, scale)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = [theirs.make_params([image]) for _ in range(3000)]
    want = np.array([[d["top"], d["left"], d["height"], d["width"]] for d in draws])
    u = uniforms(3000)[:, : 2 * ATTEMPTS + 2]
    got = Augment(crop_min=scale[0], crop_max=scale[1]).boxes(u, 32, 32).numpy()
    for measure in (
        lambda b: b[:, 2] * b[:, 3],
        lambda b: b[:, 3] / b[:, 2],
        lambda b: b[:, 0],
        lambda b: b[:, 1],
    ):
        assert ks_2samp(measure(got), measure(want)).pvalue > 1e-3


def test_boxes__fall_back_to_the_central_box_of_an_allowed_ratio() -> None:
    never = Augment(crop_min=1.0, crop_max=1.0, ratio_min=2.0, ratio_max=3.0)
    box = never.boxes(torch.zeros(2, 2 * ATTEMPTS + 2), 32, 32)
    assert box.tolist() == [[8, 0, 16, 32]] * 2
    square = Augment(crop_min=1.0, ratio_min=1.0, ratio_max=1.0)
    assert square.boxes(torch.rand(2, 2 * ATTEMPTS + 2), 32, 32).tolist() == [[0, 0, 32, 32]] * 2


@settings(max_examples=25, deadline=None)
@given(st.integers(4, 40), st.floats(0.01, 1.0), st.integers(0, 10**6))
def test_boxes__lie_inside_the_image(size: int, least: float, seed: int) -> None:
    u = uniforms(64, seed)[:, : 2 * ATTEMPTS + 2]
    u[:32, 2 * ATTEMPTS :] = 1 - 2**-24  # the last place there is
    top, left, height, width = Augment(crop_min=least).boxes(u, size, size).unbind(1)
    assert (top >= 0).all() and (left >= 0).all() and (height >= 1).all() and (width >= 1).all()
    assert (top + height <= size).all() and (left + width <= size).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_augment__does_not_depend_on_the_batch(channels: int) -> None:
    x, u = pictures(9, channels, 8), uniforms(9)
    whole = EVERYTHING(x, u)
    for some in ([4], [8, 0, 3]):
        assert torch.equal(EVERYTHING(x[some], u[some]), whole[some])


def test_augment__does_not_depend_on_the_parts_that_it_works_in() -> None:
    """Of 42 images, and one by one."""
    x, u = pictures(100, 3, 64), uniforms(100)
    assert x.numel() > 2 * augment.CELLS
    alone = torch.cat([EVERYTHING(x[n : n + 1], u[n : n + 1]) for n in range(100)])
    assert torch.equal(EVERYTHING(x, u), alone)


def test_augment__takes_bytes_and_no_image() -> None:
    x, u = torch.from_numpy(bytes_of(6)), uniforms(6)
    assert torch.equal(EVERYTHING(x, u), EVERYTHING(x.float() / 255, u))
    for channels in (1, 3):
        out = EVERYTHING(torch.zeros(0, channels, 8, 8), torch.zeros(0, EVERYTHING.draws))
        assert out.shape == (0, channels, 8, 8)


def test_augment__known_answers_of_single_stages() -> None:
    x, u = pictures(4, 3, 8), uniforms(4)
    assert torch.equal(Augment(**STILL)(x, u), x)
    assert torch.equal(Augment(**STILL | {"flip": 1.0})(x, u), x.flip(3))
    steps = torch.tensor([0.0, 0.25, 0.5, 0.75]).view(1, 1, 2, 2)
    solarized = Augment(**STILL, solarize_p=1.0)(steps, uniforms(1))
    assert solarized.flatten().tolist() == [0.0, 0.25, 0.5, 0.25]


def test_augment__gray_first_leaves_the_jitter_nothing_to_colour() -> None:
    """MoCo v1's order: the jitter meets the luma, so that what it makes of it stays gray."""
    x, u = pictures(6, 3, 8), uniforms(6)
    jittered = STILL | {"jitter_p": 1.0}
    colourless = jittered | {"gray_p": 1.0}
    first = Augment(**colourless, gray_first=True)(x, u)
    close(first, Augment(**jittered)(ops.luma(planes(x))[:, None].expand(-1, 3, -1, -1), u))
    assert (first - Augment(**colourless)(x, u)).abs().max() > 0.01
    assert MoCo().augment.gray_first and not MoCoV2().augment.gray_first


def test_augment__leaves_its_input_and_the_global_generator_alone() -> None:
    x, u = pictures(4, 3, 8), uniforms(4)
    kept, state = x.clone(), torch.random.get_rng_state()
    first = EVERYTHING(x, u)
    assert torch.equal(x, kept) and torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first, EVERYTHING(x, u))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"crop_min": 0.6, "crop_max": 0.5}, "crop_min: 0.6, must be <= crop_max"),
        ({"hue": 0.6}, "hue"),
        ({"operations": ("crop", "blur")}, "no blur"),
        ({"operations": ("crop", "flip"), "flip": 0.0}, "no flip"),
        ({"operations": ("crop", "jitter"), "jitter_p": 0.0}, "no jitter"),
        (
            {"operations": ("crop", "jitter"), "brightness": 0, "contrast": 0, "saturation": 0,
             "hue": 0}, "no jitter",
        ),
    ],
)  # fmt: skip
def test_augment__refuses(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Augment(**options)


def test_augment__refuses_other_uniforms_and_other_than_bytes() -> None:
    with pytest.raises(ValueError, match="uniforms"):
        Augment()(torch.zeros(2, 1, 8, 8), torch.zeros(2, 3))
    with pytest.raises(InputError, match="uint8"):
        content_uniforms(np.zeros((1, 1, 8, 8)), 1, 2, 36)


def bytes_of(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 1, 8, 8), dtype=np.uint8)


def test_content_uniforms__follow_the_image_not_its_place_nor_the_number_of_views() -> None:
    x = bytes_of(6)
    whole = content_uniforms(x, 1, views=3, draws=36)
    assert whole.shape == (6, 3, 36) and whole.dtype == np.float32
    for some in ([5, 0, 2], [0, 0], []):
        assert np.array_equal(content_uniforms(x[some], 1, 3, 36), whole[some])
    assert np.array_equal(content_uniforms(torch.from_numpy(x), 1, 3, 36), whole)
    assert np.array_equal(content_uniforms(x, 1, 9, 36)[:, :3], whole)


def test_content_uniforms__differ_by_seed_stream_image_and_view() -> None:
    x = bytes_of(2)
    first = content_uniforms(x, 1, 2, 36)
    kinds = [
        first[0, 0],
        first[0, 1],
        first[1, 0],
        content_uniforms(x, 2, 2, 36)[0, 0],
        content_uniforms(x, 1, 2, 36, stream="ascent")[0, 0],
    ]
    for a, b in itertools.combinations(kinds, 2):
        assert not (a == b).any()


def test_content_uniforms__are_uniform_below_one() -> None:
    draws = content_uniforms(bytes_of(200), 7, 2, 36).ravel()
    assert draws.min() >= 0 and draws.max() < 1
    assert kstest(draws, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.03
