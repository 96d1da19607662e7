"""An encoder that somebody else trained, as the method that attacks expect."""

from __future__ import annotations

from torch import Tensor

from fedmia.seeding import torch_rng
from fedmia.ssl._bank import Bank
from fedmia.ssl._twoview import TwoView
from fedmia.ssl.base import Encoder, State
from fedmia.ssl.moco import MoCoV2

BANK = 1024  # random negatives before `fill_bank`


class ReleasedMethod(TwoView):
    """A foreign encoder and a bank of negatives; it is attacked, never trained here.

    Args:
        width: P, length of the encoder's output.
        seed: of the unit vectors that the bank holds at first.

    Its temperature is MoCo v2's: what the encoder was trained with is not known.
    """

    bank: Bank
    PART = 256  # its images may be large

    def __init__(self, encoder: Encoder, width: int, seed: int) -> None:
        bank = Bank.random(BANK, width, torch_rng(seed, "released", "bank"))
        super().__init__(encoder, MoCoV2(), bank=bank)

    @property
    def queue(self) -> Tensor:
        """Negatives (K, P) of unit length."""
        return self.bank.rows

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        raise RuntimeError("a released encoder is not trained here")

    def after_step(self) -> None:
        raise RuntimeError("a released encoder is not trained here")

    def local_state(self) -> State:
        return {}
