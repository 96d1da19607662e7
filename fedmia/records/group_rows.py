"""What `report.json` holds of clients that defend themselves, beside those that do not.

The conventions of `fedmia.records.rows` hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.records.attack_rows import Interval
from fedmia.records.client_rows import LeakRow
from fedmia.records.fields import COUNT, SHARE, fact, interval, nested, number


@dataclass(frozen=True, kw_only=True)
class GroupLeakRow(LeakRow):
    """What one attack finds of a group's members."""

    under_attack: bool = fact("whether the model had received a crafted update")


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """Clients that defend themselves, or those that do not."""

    group: str = fact("`defended` or `undefended`", column="subject")
    clients: list[int] = fact("their partition ids, of many the first")
    n_clients: int = fact("how many they are")
    images: int = number("that they hold", COUNT)
    attack: str | None = fact("that the groups are compared by; null: no attack has scores")
    leakage: list[GroupLeakRow] = nested("a row an attack")
    knn: float | None = number(
        "kNN accuracy of the global encoder, test images weighted to the group's class mix",
        SHARE,
        "report.defended.knn_of",
        head="kNN for their classes",
    )
    knn_ci: Interval | None = interval("knn")
