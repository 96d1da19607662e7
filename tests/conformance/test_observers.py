"""Every observer in the registry keeps its kind's promises, where its tracker is installed."""

from __future__ import annotations

import pytest

from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.testing import check_observer


@pytest.mark.parametrize("name", registry.names("observer"))
def test_observer__keeps_its_promises(name: str) -> None:
    try:
        check_observer(registry.load("observer", name))
    except InputError as error:
        pytest.skip(str(error))
