"""One thread in the linear algebra, too: small matrices only wait for more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    with threadpool_limits(1):
        yield
