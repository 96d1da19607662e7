"""What many tests share: one torch thread, small textured images, a small MoCo, least views, and a
bank of finished runs."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.bank import Bank
from tests.clock import clock  # noqa: F401
from tests.extras import NotOfTheTests
from tests.longest import pytest_collection_modifyitems  # noqa: F401
from tests.one_ray import _ends_ray, no_ray, one_ray  # noqa: F401
from tests.pictures import _unpainted, painted  # noqa: F401
from tests.snapshots import pytest_addoption, snapshot  # noqa: F401

if TYPE_CHECKING:
    from torch import Tensor

    from fedmia.attacks.base import Attack, Known
    from fedmia.ssl.moco import MomentumContrast
    from fedmia.threat import BlackBox, Shadow

# Collecting 6,000 tests makes millions of objects that stay: each search for garbage among them
# takes longer than the one before and finds nothing.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    """The process that only hands tests to others imports none of what they need."""
    mark = "pages: each command that a page shows, by an installed wheel; slow, a step of .ci/run"
    config.addinivalue_line("markers", mark)
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    sys.meta_path.insert(0, NotOfTheTests())
    import torch
    from hypothesis import HealthCheck, settings

    torch.set_num_threads(1)
    # A busy machine changes no number: no audit chooses its threads by the load.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # No property is one of time, and a slow or busy machine draws and runs examples slowly.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")


def pytest_collection_finish() -> None:
    """Garbage is collected again from the first test on, but not sought among what is there.

    Tests make few cycles: a search after 700 objects, Python's rule, takes 5% of their time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


Textures = Callable[..., "Tensor"]
MakeMoCo = Callable[..., "MomentumContrast"]
MakeView = Callable[..., "BlackBox"]


@pytest.fixture(scope="session")
def textures() -> Textures:
    """`textures(count, seed)`: uint8 (count, 3, 8, 8), all of one distribution, all different."""
    from fedmia.testing import material

    return material.textures


@pytest.fixture(scope="session")
def images() -> Tensor:
    """Twenty images."""
    from fedmia.testing import material

    return material.textures(20)


@pytest.fixture(scope="session")
def known() -> Known:
    """Twelve known members and ten known non-members, neither among `images`."""
    from fedmia.testing import material

    return material.some_known()


@pytest.fixture(scope="session")
def make_moco() -> MakeMoCo:
    """`make_moco(seed=0, images=None, **options)`: an untrained MoCo on a narrow SmallNet."""
    from fedmia.testing import material

    return material.small_moco


@pytest.fixture(scope="session")
def held() -> Tensor:
    """Fourteen images that the attacker holds, none of them among `images` or `known`."""
    from fedmia.testing import material

    return material.textures(14, seed=2)


@pytest.fixture(scope="session")
def serving(held: Tensor) -> Tensor:
    """The half of `held` that is the bank of every image that is not in it."""
    from fedmia.data.images import digests

    names = digests(held.numpy())
    return held[sorted(range(len(held)), key=names.__getitem__)[::2]]


@pytest.fixture(scope="session")
def shadows() -> tuple[Shadow, ...]:
    """Three encoders of the attacker's own, said to be trained on half of twenty images each."""
    from fedmia.testing import material

    return material.small_shadows()


@pytest.fixture(scope="session")
def make_view(held: Tensor, shadows: tuple[Shadow, ...]) -> MakeView:
    """`make_view(attack, method, targets, augment=..., budget=..., signals=..., held=...,
    shadows=...)`; an attack that uses no shadows is given none."""
    from fedmia.testing import material

    def make(attack: Attack, *rest: Any, **more: Any) -> BlackBox:
        view: BlackBox = material.least_view(
            attack, *rest, **({"held": held, "shadows": shadows} | more)
        )
        return view

    return make


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """`bank.run(name)`: the folder of a finished run, to be read only."""
    own = tmp_path_factory.getbasetemp()  # with several workers each has one, in one they share
    return Bank((own.parent if own.name.startswith("popen-") else own) / "bank")
