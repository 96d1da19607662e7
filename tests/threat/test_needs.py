"""What a threat grants, and the queries that a meter counts."""

from __future__ import annotations

import pytest

from fedmia.settings.errors import InputError
from fedmia.threat import VANTAGE
from fedmia.threat.needs import ACCESS, BudgetError, Meter, Threat, require


def test_covers__is_the_product_order() -> None:
    threats = [Threat(a, v) for a in ACCESS for v in VANTAGE]
    for held in threats:
        for needs in threats:
            enough = ACCESS.index(held.access) >= ACCESS.index(needs.access)
            near = VANTAGE.index(held.vantage) >= VANTAGE.index(needs.vantage)
            assert held.covers(needs) == (enough and near)
    for access, vantage in (("grey_box", "client"), ("white_box", "insider")):
        with pytest.raises(ValueError, match="no such threat"):
            Threat(access, vantage)


def test_require__names_need_and_holding() -> None:
    held, needs = Threat("white_box", "outsider"), Threat("white_box", "client")
    require(needs, held)
    with pytest.raises(InputError, match="^needs white_box access as client.*as outsider"):
        require(held, needs)


def test_meter__counts_to_its_budget_and_not_while_it_is_paused() -> None:
    meter = Meter(5)
    with meter.pause():
        meter.charge(9)
    assert meter.queries == 0
    meter.charge(5)
    with pytest.raises(BudgetError):
        meter.charge(1)
    assert meter.queries == 5
