"""Whether an encoder answers the same image alike when it is asked again."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

SAME = 1e-4  # of the largest output: what two passes of one image may differ by on a GPU


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    """The layers whose outputs (B, ..) of the same images differ."""
    pairs = ((name, old, after[name]) for name, old in before.items())
    return {name for name, old, new in pairs if (new - old).abs().max() > SAME * old.abs().max()}
