"""The norm of the encoder, by the options of the network and of the method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def norm_kind(model: Mapping[str, Any], ssl: Mapping[str, Any]) -> str:
    """Which norm the encoder has, `group` or `batch`, by the options of the encoder and of the
    method."""
    norm = str(model.get("norm", "group"))
    return "batch" if norm == "split" or ssl.get("head_norm") == "batch" else norm


def norm_of(experiment: Any) -> str:
    """The kind of the model's norm: `group`, `batch`, or `local`, batch norm whose running
    statistics never leave the client."""
    norm = norm_kind(experiment.model.options, experiment.ssl.options)
    return "local" if norm == "batch" and experiment.federation.batch_norm == "local" else norm
