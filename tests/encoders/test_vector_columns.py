"""Which columns of a parquet file are a vector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedmia.encoders.vectors import read_vectors
from fedmia.settings.errors import InputError


@pytest.mark.parametrize("index", [None, "image_id"])
def test_parquet__the_index_of_pandas_is_no_column(index: str | None, tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(60, 8)).astype(np.float32)
    frame = pd.DataFrame(rows, columns=[f"d{n}" for n in range(8)]).rename_axis(index)
    part = frame.iloc[np.random.default_rng(2).permutation(60)[:30]]
    part.to_parquet(tmp_path / "A.parquet")
    read = read_vectors(tmp_path / "A.parquet", "A")
    assert np.array_equal(read.vectors[:, 0], part.to_numpy())


def test_parquet__of_floats_and_other_columns_is_refused(tmp_path: Path) -> None:
    numbers = pd.DataFrame({"a": [0, 1, 2], "b": [3, 4, 5]})
    numbers.to_parquet(tmp_path / "A.parquet")
    read = read_vectors(tmp_path / "A.parquet", "A").vectors
    assert read.tolist() == [[[0, 3]], [[1, 4]], [[2, 5]]]
    frame = numbers.assign(a=0.5, image_id=[7, 8, 9], trained=True)
    frame.to_parquet(tmp_path / "B.parquet")
    with pytest.raises(InputError, match=r"^B: .* leave them out: b, image_id, trained$"):
        read_vectors(tmp_path / "B.parquet", "B")
