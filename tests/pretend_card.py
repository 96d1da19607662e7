"""A graphics card that is none: tensors that say they are elsewhere, and compute on the CPU.

torch's `meta` device stands for it, as every build of torch has that one and its autograd. What a
real card refuses, this one refuses: to compute with tensors that were left on the CPU (but for one
number), and to give NumPy its memory. What crosses between the two is counted in bytes.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

CARD = torch.device("meta")
CPU = torch.device("cpu")
COPIES = {"clone", "copy_", "_to_copy", "cat", "stack", "_foreach_copy_", "lift_fresh_copy"}
DRAWS = {
    "normal_", "normal", "uniform_", "rand", "randn", "rand_like", "randn_like", "bernoulli_",
    "bernoulli", "randperm", "randint", "random_", "exponential_", "multinomial",
}  # fmt: skip
# Operations whose result, or the shape of it, the host has to wait for.
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal", "is_nonzero"}


class CardTensor(Tensor):
    """A tensor on the card.

    Attributes:
        inner: its numbers, on the CPU.
    """

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> CardTensor:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=CARD, requires_grad=False,
        )  # fmt: skip

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"card({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {}, Counter())

    @property
    def data(self) -> Tensor:
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined, no-any-return]

    @data.setter
    def data(self, value: Tensor) -> None:
        assert isinstance(value, CardTensor)
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.inner = value.inner

    def tolist(self) -> Any:
        """Its numbers, which leave the card."""
        return self.cpu().tolist()


class Watch(TorchDispatchMode):
    """Counts what the operations of its threads do, and turns what is asked for on the card.

    Attributes:
        counts: bytes by what they were: `copied`, `drawn` (numbers, not bytes), `to host`,
            `to card`, `waits` (operations).
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts, self._lock = Counter[str](), Lock()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counts, name = Counter[str](), func.overloadpacket.__name__
        result = compute(func, args, kwargs or {}, counts)
        if name in COPIES:
            counts["copied"] = sum(map(size, tree_leaves(args[0] if result is None else result)))
        if name in DRAWS:
            counts["drawn"] = sum(t.numel() for t in tree_leaves(result))
        with self._lock:
            self.counts.update(counts)
        return result

    def take(self) -> Counter[str]:
        """The counts since the last call."""
        with self._lock:
            taken, self.counts = self.counts, Counter[str]()
        return taken


def compute(func: Any, args: Any, kwargs: dict[str, Any], counts: Counter[str]) -> Any:
    """An operation on the card or on the CPU, or from one to the other."""
    name = func.overloadpacket.__name__
    leaves = [*_tensors(args), *_tensors(kwargs.values())]
    cards = [t for t in leaves if isinstance(t, CardTensor)]
    target = kwargs.get("device")
    if not cards and (target is None or torch.device(target) != CARD):
        return func(*args, **kwargs)
    goes = torch.device(target) if target is not None else CARD
    if name == "copy_":
        goes = args[0].device
    if name in WAITS:
        counts["waits"] += 1
        counts["to host"] += size(cards[0]) if name == "_local_scalar_dense" else 1
    elif name in ("_to_copy", "copy_"):
        source = args[1] if name == "copy_" else args[0]
        if source.device != goes:
            counts["to host" if goes == CPU else "to card"] += size(source)
            counts += Counter(waits=int(goes == CPU))
    elif name in ("index", "index_put_", "index_put", "_index_put_impl_"):  # indices may be brought
        counts["to card"] += sum(size(t) for t in leaves if not isinstance(t, CardTensor))
    elif strangers := [t for t in leaves if not isinstance(t, CardTensor) and t.dim()]:
        shapes = [tuple(t.shape) for t in strangers]
        raise RuntimeError(f"{name}: tensors {shapes} are on the cpu, the others on the card")
    bare = {n: CPU if n == "device" and v is not None else v for n, v in kwargs.items()}
    result = func(*tree_map(_bare, args), **tree_map(_bare, bare))
    if name[-1] == "_" and name[:2] != "__":  # in place
        return None if name.startswith("_foreach") else args[0]
    return tree_map(_wrapped, result) if goes == CARD else result


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Tensors among arguments and in their lists."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _bare(value: Any) -> Any:
    return value.inner if isinstance(value, CardTensor) else value


def _wrapped(value: Any) -> Any:
    return CardTensor(value) if isinstance(value, Tensor) else value


def size(tensor: Any) -> int:
    """Bytes of a tensor."""
    return tensor.numel() * tensor.element_size() if isinstance(tensor, Tensor) else 0


@contextlib.contextmanager
def pretend_card() -> Iterator[Watch]:
    """A card for this thread; other threads have to enter the watch themselves.

    Yields:
        What counts; the tensors of `.to(CARD)` are on the card while it is at work.
    """
    real = torch.autocast

    def autocast(kind: str, *args: Any, **options: Any) -> Any:
        return real("cpu" if kind == CARD.type else kind, *args, **options)

    swap = torch.__future__.set_swap_module_params_on_conversion
    swap(True)  # a module that moves keeps its parameters, as it does to a real card
    try:
        with patch("torch.autocast", autocast), Watch() as watch:
            yield watch
    finally:
        swap(False)
