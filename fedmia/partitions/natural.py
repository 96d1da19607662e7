"""Natural partition: the images of a client come from one hospital, writer or camera."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmia.data.base import Dataset
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet, IntArray
from fedmia.partitions.base import OwnerPartition
from fedmia.records.note import Note
from fedmia.settings import option
from fedmia.settings.errors import IncompleteError, InputError, opt

COLUMN = "partition.column"  # the option
NOTED_CLIENTS = 20  # clients that a note names


@dataclass(frozen=True)
class Natural(OwnerPartition):
    """A client is a value of a column of the data source: a hospital, a writer."""

    paper: ClassVar[str] = "Caldas et al., 'LEAF: A Benchmark for Federated Settings', 2018"

    column: str | None = option(
        None, "column whose values are the clients (none: a list's own column of owners)"
    )

    def check(self, source: Dataset, name: str) -> None:
        if self.column is None and not source.finds_columns:
            raise InputError(f"partition natural needs {opt(COLUMN, 'NAME')}")
        super().check(source, name)

    def wants(self) -> dict[str, str]:
        return {COLUMN: self.column or ""}

    def kinds(self, data: ImageSet | EncodedSet, clients: int) -> IntArray:
        """Which of the `clients` values with the most images an image has, by their order; -1 for
        every other value.

        Raises:
            InputError: the source handed over no column, or one of fewer values.
        """
        column, values = self._values(data, clients)
        places = np.searchsorted(values, column)
        frequent = values[np.minimum(places, clients - 1)] == column
        return np.where(frequent, places, -1).astype(np.int64)

    def notes(self, data: ImageSet, clients: int) -> list[Note]:
        values, column = self._values(data, clients)[1][:NOTED_CLIENTS].tolist(), self._called()
        return [Note("clients-by-value", {"column": column, "values": values, "clients": clients})]

    def _values(
        self, data: ImageSet | EncodedSet, clients: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """(N,) value of each image, and (clients,) those of the most images, ascending; where two
        have as many, the first in order."""
        if COLUMN not in data.columns:
            raise InputError(f"partition natural: {data.name} hands over no '{self._called()}'")
        values, counts = np.unique(data.columns[COLUMN], return_counts=True)
        if len(values) < clients:
            why = (
                f"partition natural: '{self._called()}' of {data.name} has {len(values)} values, "
                f"{opt('federation.clients', clients)} needs one for each client"
            )
            raise IncompleteError([why], {"federation.clients": len(values)})
        return data.columns[COLUMN], np.sort(values[np.argsort(-counts, kind="stable")[:clients]])

    def _called(self) -> str:
        return self.column or "owner"
