"""MLflow: parameters, metrics and files of a run on the server of MLFLOW_TRACKING_URI."""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from fedmia.observers.base import RunObserver
from fedmia.records.rows import Report
from fedmia.settings.errors import InputError
from fedmia.storage.json_rows import to_json

LONGEST = 500  # characters of a parameter's value that every server takes


class MLflow(RunObserver):
    """A run on the MLflow server of MLFLOW_TRACKING_URI: the extra `mlflow`."""

    def check(self, folder: Path | None) -> None:
        try:
            importlib.import_module("mlflow")
        except ImportError as error:
            raise InputError(
                f"observer mlflow: {error}; pip install '.[mlflow]' in a clone of fedmia"
            ) from None

    def begin(self, config: Mapping[str, Any], folder: Path | None) -> None:
        self._mlflow = importlib.import_module("mlflow")
        self._mlflow.start_run(run_name=None if folder is None else folder.name)
        self._mlflow.log_params({name: str(value)[:LONGEST] for name, value in _flat(config)})

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def report(self, report: Report, figures: Mapping[str, bytes], prefix: str) -> None:
        self._mlflow.set_tags(
            {f"{prefix}{n}": getattr(report, n) for n in ("verdict", "verdict_code")}
        )
        self._mlflow.log_dict(to_json(report, exact=True), f"{prefix}report.json")
        for name, png in figures.items():
            self._mlflow.log_image(Image.open(io.BytesIO(png)), f"{prefix}figures/{name}.png")

    def end(self, failed: bool) -> None:
        self._mlflow.end_run("FAILED" if failed else "FINISHED")


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of every setting."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
