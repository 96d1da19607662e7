"""The installed wheel, and what the commands of the pages read, made once in a session."""

from __future__ import annotations

import pytest

from tests.bank import exclusive
from tests.pages.installed import Installed
from tests.pages.materials import Materials


@pytest.fixture(scope="session")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Materials:
    own = tmp_path_factory.getbasetemp()
    root = (own.parent if own.name.startswith("popen-") else own) / "pages"
    installed = Installed(root / "installed")
    with exclusive(root / "installed.lock"):
        if not (root / "ready").exists():
            installed.install()
            (root / "ready").touch()
    return Materials(installed, root / "materials")
