"""What the attacks' tests share beside `planted` and `loops`."""

from __future__ import annotations

from typing import Any

import pytest

from fedmia.ssl.moco import MomentumContrast


@pytest.fixture
def method(make_moco: Any) -> MomentumContrast:
    return make_moco()
