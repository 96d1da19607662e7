"""Images whose source tells no classes: laws that deal by them say so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmia.data.images import UNLABELLED, ImageSet
from fedmia.partitions.split import SplitOptions, make_split
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from tests.small_runs import ran, simulate

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


def test_probes__of_one_class_do_not_run(tmp_path: Path) -> None:
    """But a model that diverged is found all the same."""
    np.savez(tmp_path / "photos.npz", x=np.tile(PIXELS, (1, 1, 2, 2)).transpose(0, 2, 3, 1))
    flags = (
        f"--dataset npz:{tmp_path / 'photos.npz'} --clients 2 --rounds 1 --attacks none --quiet "
        "--split.members 20 --split.known 4 --split.nonmembers 10 --split.test 8 --device cpu "
        "--partition iid --model.width 2 "
    )
    report = ran(flags, tmp_path / "RUN")
    utility = report["utility"]
    assert (utility["knn"], utility["linear"]) == (None, None)
    assert [row["knn"] for row in report["rounds"]] == [None]
    assert simulate(f"{flags}--train.lr 1e30", tmp_path / "OTHER") == 1
