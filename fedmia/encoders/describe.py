"""What a loaded encoder does with images: what is odd about it, what is understood of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedmia.encoders._outputs import FAILURES
from fedmia.encoders._positions import is_positions
from fedmia.encoders.base import LoadedEncoder
from fedmia.records.note import Note
from fedmia.records.rows import EncoderRow, OutputRow
from fedmia.settings.errors import InputError, opt
from fedmia.ssl.base import iterate_parts
from fedmia.untrusted.limits import first_line

SAME = 1e-4  # of the largest output: what two passes of one image may differ by on a GPU


@torch.no_grad()
def probe_encoder(
    released: LoadedEncoder, images: Tensor, *, allow_random: bool = False
) -> list[Note]:
    """Embed a few of the user's images, and say what is odd about the features.

    Args:
        released: the encoder.
        images: uint8 (N, C, H, W), N >= 1, as they will be audited.
        allow_random: accept, with a note, an encoder that answers one image in two ways.

    Returns:
        Notes: outputs that are the same for all images, outputs that differ between two calls with
        one image, a map of one place.

    Raises:
        InputError: no images, channels or a size that the encoder does not take, features that
            are not finite, or that differ when they are asked for again.
    """
    _check_images(released, images)
    encoder = released.method.encoder.eval()
    odd, outputs, changes = dict.fromkeys(encoder.layers, 0), list[Tensor](), set[str]()
    for part in iterate_parts(images, encoder.mean.device):
        try:
            features = encoder.features(part, encoder.layers)
        except InputError:
            raise
        except FAILURES as error:
            fails = f"{released.name} fails on images of {'x'.join(map(str, images.shape[1:]))}"
            raise InputError(f"{fails} (size resizes them): {first_line(error)}") from None
        outputs.append(features["encoder"].float().cpu())
        again = encoder.features(part, encoder.layers)
        for name, value in features.items():
            odd[name] += int((~torch.isfinite(value.flatten(1))).any(dim=1).sum())
            if (again[name] - value).abs().max() > SAME * value.abs().max():
                changes.add(name)
    for name, bad in odd.items():
        if bad:
            raise InputError(
                f"{released.name}: layer '{name}' is not finite for {bad} of {len(images)} images "
                f"(NaN or infinity in the weights, or a wrong "
                f"{opt('data.mean')} or {opt('data.std')})"
            )
    notes, out, name = list[Note](), torch.cat(outputs), released.name
    if len(out) > 1 and torch.equal(out, out[:1].expand_as(out)):
        notes.append(Note("constant-output", {"encoder": name, "images": len(out)}))
    if changes:
        earliest = min(changes, key=encoder.layers.index)
        if not allow_random:
            raise InputError(
                f"{name} answers the same image differently when it is asked again, from layer "
                f"'{earliest}' on (dropout or random masks in its forward pass): its scores would "
                f"depend on chance; {opt('encoder.allow_random')}"
            )
        notes.append(Note("random-output", {"encoder": name, "layer": earliest}))
    if encoder.map_layer is not None and features[encoder.map_layer].shape[2:] == (1, 1):
        notes.append(Note("one-place-map", {"encoder": name}))
    return notes


def _check_images(released: LoadedEncoder, images: Tensor) -> None:
    """Refuse images of another number of channels or another size than the encoder takes."""
    if not len(images):
        raise InputError(f"no image to show to {released.name}")
    (channels, height, width), side = images.shape[1:], released.size
    if released.channels not in (None, channels):
        takes = f"{released.name} takes {released.channels}"
        raise InputError(f"the images have {channels} channels, {takes}")
    if released.fixed_size and side is not None and {height, width} != {side}:
        takes = f"{released.name} takes {side}x{side}: {opt('data.size', side)} resizes them"
        raise InputError(f"the images are {height}x{width} pixels, {takes}")


@torch.no_grad()
def describe(released: LoadedEncoder, size: int) -> EncoderRow:
    """Describe an encoder for the report.

    Args:
        released: the encoder.
        size: pixels a side of the audited images.

    Returns:
        Where its weights come from, its preprocessing, and its outputs for images of `size`.
    """
    net, weights = released.method.encoder, released.weights
    blank = net.mean.new_zeros(1, released.channels or net.mean.shape[1], size, size)
    headed = not isinstance(net.head, nn.Identity)
    kinds = {"avgpool": "pooled", "encoder": "projection" if headed else "pooled"}
    features = net.features(blank, net.layers).items()
    return EncoderRow(
        form=weights.form,
        loaded=weights.loaded,
        dropped=list(weights.dropped),
        missing=list(weights.missing),
        size=size,
        mean=net.mean.flatten().tolist(),
        std=net.std.flatten().tolist(),
        outputs=[
            OutputRow(name=n, kind=kinds.get(n, "map"), shape=list(value.shape[1:]))
            for n, value in features
        ],
        crops=_crops(released, blank),
        round=None,
    )


def _crops(released: LoadedEncoder, blank: Tensor) -> str:
    """Which sizes of an image's parts the encoder takes; `blank` is an image (1, C, S, S)."""
    encoder, size = released.method.encoder, blank.shape[2]
    patch = encoder.backbone.patch
    half = patch * max(1, size // 2 // patch)
    try:
        encoder.features(blank[:, :, :half, :half], ["avgpool"])
    except FAILURES:
        return f"{size} pixels alone"
    sides = "any" if patch == 1 else f"multiples of {patch} pixels"
    tables = any(map(is_positions, encoder.state_dict()))
    return f"{sides}, positions resampled" if released.fixed_size and tables else sides
