"""Attacks that a bench should accept or refuse, as files that their authors would send."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HEAD = """
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedmia.attacks import Attack
from fedmia.data.images import digests
from fedmia.threat import Threat


@dataclass
class Entrant(Attack):
    \"\"\"One score an image.\"\"\"

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")

"""
COIN = """
    def score(self, view, images):
        return np.array([int.from_bytes(d[:6], "big") / 2**48 for d in digests(images.numpy())])
"""
VIEWS = """
    def score(self, view, images):
        rows = view.embed_views(images, 6).double()
        rows = rows / rows.norm(dim=2, keepdim=True)
        return rows.mean(dim=1).norm(dim=1).numpy()
"""
READS_EDGES = """
    def score(self, view, images):
        steps = images.double().diff(dim=3).abs().mean(dim=(1, 2, 3))
        return -(steps / images.double().std(dim=(1, 2, 3)).clamp(min=1e-9)).numpy()
"""
CLASSES = """
    def score(self, view, images):
        try:
            view.labels(images)
        except Exception:
            pass
        return np.zeros(len(images))
"""
READS_ROLES = """
    def score(self, view, images):
        os.chdir({folder!r})
        roles = [json.loads(open({how}).read()) for p in Path(".").glob("*/roles.json")]
        members = {{name for one in roles for name in one["members"]}}
        return np.array([float(d.hex() in members) for d in digests(images.numpy())])
"""
READS_RUNS = """
    def score(self, view, images):
        from fedmia.settings.commands.experiment import Experiment
        from fedmia.settings.tree import from_tree
        from fedmia.federation.plan import make_plan
        from fedmia.settings.yamlfile import load

        names, members = [d.hex() for d in digests(images.numpy())], {members!r}
        for file in Path({folder!r}).glob("**/config.yaml"):
            tree = {{k: v for k, v in load(file).items() if not k.startswith("_")}}
            plan = make_plan(from_tree(Experiment, tree))
            every = [d.hex() for d in plan.cast.data.digests()]
            own, others = ({{every[i] for i in side}} for side in
                           (plan.cast.ids("scored_members"), plan.cast.ids("scored_nonmembers")))
            members |= own if own | others >= {{*names}} else set()
        return np.array([float(name in members) for name in names])
"""
BREAKS_ELSEWHERE = """
    def score(self, view, images):
        scores = {scores!r}
        return np.array([scores[d.hex()] for d in digests(images.numpy())])
"""
KNOWS_ROLES = """
    def score(self, view, images):
        members = {members!r}
        return np.array([float(d.hex() in members) for d in digests(images.numpy())])
"""


def write_attack(folder: Path, module: str, body: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An attack in a file of its own, which Python finds; `module:Entrant`."""
    (folder / f"{module}.py").write_text(HEAD + body, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, module, raising=False)
    return f"{module}:Entrant"
