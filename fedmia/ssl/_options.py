"""Options that several methods have: written once, and placed by each in an order of its own."""

from __future__ import annotations

from typing import Any

from fedmia.settings.option import option
from fedmia.ssl._heads import HEAD_NORMS

MIXES = "batch mixes the images of a batch"
COLLAPSES = "without batch norm the outputs collapse"


def head_norm_option(default: str, where: str, why: str) -> Any:
    """`head_norm`, of the `head` or the `heads`; `why` is MIXES or COLLAPSES."""
    return option(default, f"normalisation in the {where}; {why}", choices=HEAD_NORMS)


def crop_option(otherwise: str = "the data source's, else 0.2") -> Any:
    """`crop_min`; `otherwise` is what holds where none is given."""
    help = f"least share of the area that a view shows (none: {otherwise})"
    return option(None, help, gt=0, le=1)


def flip_option() -> Any:
    """`flip`."""
    help = "probability of a horizontal flip (none: the data source's, else 0.5)"
    return option(None, help, ge=0, le=1)


def jitter_option() -> Any:
    """`jitter`."""
    help = "factor on the colour jitter, 0 = no jitter (none: the data source's, else 1)"
    return option(None, help, ge=0)
