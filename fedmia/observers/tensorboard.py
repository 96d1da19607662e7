"""TensorBoard: event files beside the report, read by `tensorboard --logdir OUT`."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedmia.observers.base import RunObserver
from fedmia.records.rows import Report
from fedmia.settings.errors import InputError, opt
from fedmia.storage.durable import make_folder


class TensorBoard(RunObserver):
    """Event files for TensorBoard in `OUT/tensorboard`: the extra `tensorboard`."""

    def check(self, folder: Path | None) -> None:
        if folder is None:
            raise InputError(f"observer tensorboard needs {opt('out', 'FOLDER')}")
        try:
            importlib.import_module("torch.utils.tensorboard")
        except ImportError as error:
            raise InputError(
                f"observer tensorboard: {error}; pip install '.[tensorboard]' in a clone of fedmia"
            ) from None

    def begin(self, config: Mapping[str, Any], folder: Path | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        events = Path(folder or ".") / "tensorboard"
        make_folder(events)
        self._writer = SummaryWriter(str(events))
        text = json.dumps(config, indent=2, ensure_ascii=False)
        self._writer.add_text("config", f"```json\n{text}\n```")

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # so that the page follows the run

    def report(self, report: Report, figures: Mapping[str, bytes], prefix: str) -> None:
        self._writer.add_text(f"{prefix}verdict", report.verdict)
        for name, png in figures.items():
            pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
            self._writer.add_image(prefix + name, pixels, dataformats="HWC")

    def end(self, failed: bool) -> None:
        self._writer.close()
