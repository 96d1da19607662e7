"""Images whose source tells no classes: laws that deal by them say so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmia.data.cast import Cast
from fedmia.data.images import UNLABELLED, ImageSet
from fedmia.federation.utility import Probes
from fedmia.partitions.split import SplitOptions, make_split
from fedmia.settings import registry
from fedmia.settings.errors import InputError

PIXELS = np.random.default_rng(0).integers(0, 256, (60, 3, 4, 4), dtype=np.uint8)
DATA = ImageSet(PIXELS, np.zeros(60, dtype=np.int64), "photos", UNLABELLED)
SIZES = SplitOptions(members=20, known=4, nonmembers=10, test=8)


@pytest.mark.parametrize("name", ["dirichlet", "shards"])
def test_partitions__by_classes_refuse_images_without(name: str) -> None:
    law = registry.build("partition", name, {})
    want = f"partition {name} deals by classes, and the images of photos have no labels; .*iid"
    with pytest.raises(InputError, match=want):
        make_split(DATA, SIZES, law, 4, 0, False, 0)
    assert len(make_split(DATA, SIZES, law, 1, 0, False, 0).parts) == 1
    one_class = replace(DATA, classes=("cat",))
    assert len(make_split(one_class, SIZES, law, 4, 0, False, 0).parts) == 4
    for other in ("iid", "quantity"):  # of numbers alone
        law = registry.build("partition", other, {})
        assert len(make_split(DATA, SIZES, law, 4, 0, False, 0).parts) == 4


def test_probes__of_one_class_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """But a model that diverged is found all the same."""
    nothing: Any = None  # the model is not asked
    probes, asked = Probes(nothing, Cast((DATA, DATA), {})), list[Any]()
    monkeypatch.setattr(Probes, "features", lambda self, state: asked.append(state))
    assert probes.knn({}) is None and asked == [{}]
    assert {n: (p.value, p.n) for n, p in probes.both({}).items()} == {
        "knn": (None, 0), "linear": (None, 0)
    }  # fmt: skip
