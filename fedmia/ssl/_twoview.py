"""What methods of two views share: modules, a bank of negatives, a momentum encoder, options."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.base import Backbone, initialise
from fedmia.records.note import Note
from fedmia.settings import option
from fedmia.ssl._harder import adversarial_view, mixed_losses
from fedmia.ssl._heads import mlp
from fedmia.ssl._options import MIXES, HarderSSL, head_norm_option
from fedmia.ssl.bank import Bank, bank_length, cut_note
from fedmia.ssl.base import (
    Encoder,
    SSLMethod,
    State,
    TrainingData,
    copies,
    iterate_parts,
    load_state,
    under,
)


class TwoView(SSLMethod):
    """An encoder, perhaps a predictor, and perhaps a bank of negatives.

    MoCo trains against its bank, the queue. Elsewhere the bank is there for `output_losses`: an
    observer needs negatives, and a method that takes them from its batch has none left once the
    batch is gone. It holds the holder's latest outputs, random directions before the first.

    Args:
        encoder: its output is what observers see; a predictor is no part of it.
        predictor: applied in training alone; averaged as `predictor.`.
        spec: the method's options; its `temperature` is that of the bank's losses.
        bank: of rows as long as the outputs, or None for a method whose reading needs no negatives.
    """

    spec: Any
    bank: Bank | None
    BANK: ClassVar[str] = "bank"  # what `local_state` and the options call it
    # Integers and buffers that stay with the client: what `local_state` calls each, and where it
    # is. No snapshot of the holder's knowledge contains a name that begins with `key.`.
    LOCAL: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        encoder: Encoder,
        spec: Any,
        *,
        predictor: nn.Module | None = None,
        bank: Bank | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.spec = spec
        self.predictor = predictor
        self.bank = bank

    def shared_modules(self) -> Mapping[str, nn.Module]:
        if self.predictor is None:
            return {"": self.encoder}
        return {"": self.encoder, "predictor.": self.predictor}

    def step_losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """`losses`, the term of `SSL.extra_losses`, and the losses of adversarial first views and
        of mixed ones, where options say so.

        Adversarial views are found in evaluation mode, as in RoCL: no running statistic moves.
        """
        spec, added = self.spec, []
        if spec.adversarial:
            self.eval()
            moved = adversarial_view(
                self.losses, view1, view2, spec.adversarial, spec.adversarial_steps
            )
            added.append(self.train().losses(moved, view2))
        if spec.mixup:
            added.append(spec.mixup * mixed_losses(self.against, view1, view2))
        if (term := spec.extra_losses(self, view1, view2)) is not None:
            added.append(term)
        # Last, because what the step remembers is of the plain views.
        return sum(added, self.losses(view1, view2))

    def against(self, mixed: Tensor, view2: Tensor) -> Tensor:
        """Loss of each mixture of images where each image's second view is the positive, (M, B).

        Args:
            mixed: (M, C, H, W) in [0, 1].
            view2: (B, C, H, W) in [0, 1].
        """
        raise NotImplementedError  # of a method without the option `mixup`

    def remember(self, outputs: Tensor) -> None:
        """Note a batch's outputs (B, P); `after_step` puts them into the bank."""
        self.latest = (F.normalize(outputs.detach(), dim=1),)

    def after_step(self) -> None:
        """Outputs of the batch overwrite the oldest of the bank."""
        if self.bank is not None:
            for new in self.latest:
                self.bank.enqueue(new)
        self.latest = ()

    def output_losses(self, z1: Tensor, z2: Tensor) -> Tensor:
        """InfoNCE against the bank, summed over both directions: an observer is given outputs, and
        has no batch, no predictor and no momentum encoder."""
        assert self.bank is not None
        return self.bank.losses(z1, z2, self.spec.temperature)

    @torch.no_grad()
    def fill_bank(self, pixels: Tensor) -> None:
        """Replace the bank by outputs of `pixels` (N, C, H, W), in [0, 1] or uint8; without one:
        nothing."""
        if self.bank is not None:
            parts = iterate_parts(pixels, self.encoder.mean.device)
            self.bank.fill(torch.cat([self.encoder(part) for part in parts]))

    @property
    def stackable(self) -> bool:
        """Where nothing but the bank, and the momentum encoder, follows a step: as long as a method
        adds no step of its own."""
        plain = type(self).after_step in (TwoView.after_step, KeyedTwoView.after_step)
        return plain and not self.LOCAL and not self.spec.harder

    def renew(self, images: int | None, generator: torch.Generator) -> bool:
        self.renew_bank(images, generator)
        self.latest = ()
        return True

    def renew_bank(self, images: int | None, generator: torch.Generator) -> None:
        """The first bank of a holder of `images` images."""
        if self.bank is not None:
            rows = self.bank_rows(images)
            self.bank.fill(torch.randn(rows, self.bank.rows.shape[1], generator=generator))

    def bank_rows(self, images: int | None) -> int:
        """How long the bank of a holder of `images` images is."""
        return bank_length(getattr(self.spec, self.BANK), images)

    def local_state(self) -> State:
        bank = {} if self.bank is None else self.bank.state(self.BANK)
        values = {name: attrgetter(path)(self) for name, path in self.LOCAL.items()}
        return bank | {name: torch.as_tensor(value).clone() for name, value in values.items()}

    def load_local(self, state: State) -> None:
        """Restore the bank and what is kept, where `state` holds them."""
        if self.bank is not None:
            self.bank.load(self.BANK, state)
        for name in self.LOCAL.keys() & state.keys():
            holder, _, attribute = self.LOCAL[name].rpartition(".")
            owner = self.get_submodule(holder)
            old, new = getattr(owner, attribute), state[name]
            is_number = isinstance(old, int)
            setattr(owner, attribute, int(new) if is_number else new.to(old.device).clone())


class KeyedTwoView(TwoView):
    """Also a momentum encoder, which stays with the client: k <- m k + (1 - m) q.

    The options hold `momentum`, m, `momentum_schedule`, how it goes over the run, and `key`: `keep`
    the client's own between rounds, or `reset` to the received encoder.
    """

    def __init__(self, encoder: Encoder, spec: Any, **more: Any) -> None:
        super().__init__(encoder, spec, **more)
        self.key_encoder = copy.deepcopy(encoder).requires_grad_(False)
        # Walking the modules at every step costs a tenth of a small encoder's training.
        self._keys: list[Tensor] = list(self.key_encoder.parameters())
        self._queries: list[Tensor] = list(self.encoder.parameters())

    def pairs(self) -> Mapping[str, tuple[nn.Module, nn.Module]]:
        """What follows by momentum, and what it follows, by the prefix of its local names."""
        return {"key.": (self.key_encoder, self.encoder)}

    @property
    def momentum(self) -> float:
        """m of the coming update: a function of the run's step alone, so of no round missed."""
        if self.spec.momentum_schedule == "constant":
            return float(self.spec.momentum)
        return raise_momentum(self.spec.momentum, self.progress)

    @torch.no_grad()
    def after_step(self) -> None:
        """The momentum update of the parameters, then the bank.

        Batch norm's running statistics stay the key encoder's own, as in public code.
        """
        torch._foreach_lerp_(self._keys, self._queries, 1 - self.momentum)
        super().after_step()

    def begin_first_round(self) -> None:
        """The momentum encoder starts as a copy of the global one."""
        self._reset_key()

    def begin_round(self) -> None:
        if self.spec.key == "reset":
            self._reset_key()

    def _reset_key(self) -> None:
        for key, query in self.pairs().values():
            load_state(key, query.state_dict())

    def local_state(self) -> State:
        state = super().local_state()
        for prefix, (key, _) in self.pairs().items():
            state |= copies(prefix, key)
        return state

    def load_local(self, state: State) -> None:
        """Restore also the momentum encoder, where `state` holds one."""
        super().load_local(state)
        remaining = {n: t for n, t in state.items() if n not in self.LOCAL}
        for prefix, (key, _) in self.pairs().items():
            if own := under(prefix, remaining):
                load_state(key, own, prefix)
            remaining = {n: t for n, t in remaining.items() if not n.startswith(prefix)}


def raise_momentum(m: float, done: float) -> float:
    """1 - (1 - m) (cos(pi k/K) + 1) / 2, from m to 1: BYOL, Sec. 3.2; likewise the public code of
    MoCo v3 and DINO. `done` is k/K, the share of the steps that are over."""
    return 1 - (1 - m) * (math.cos(math.pi * done) + 1) / 2


@dataclass(frozen=True)
class TwoViewSSL(HarderSSL):
    """Options of every such method."""

    dim: int = option(128, "length of the projected vector", ge=2)
    hidden: int | None = option(
        None, "width of the heads' hidden layers (none: twice the backbone's features)", ge=1
    )
    head_norm: str = head_norm_option("layer", "heads", MIXES)

    @property
    def coupled(self) -> bool:
        """By batch norm in the heads or mixed images; by the loss itself where a class says so."""
        return self.head_norm == "batch" or super().coupled

    def encoder(
        self,
        backbone: Backbone,
        training_data: TrainingData,
        generator: torch.Generator,
        layers: int,
        last_norm: bool = False,
    ) -> Encoder:
        """The backbone with a head of so many layers (`mlp`), every weight drawn."""
        D = backbone.width
        head = mlp(D, self.hidden or 2 * D, self.dim, layers, self.head_norm, last_norm)
        encoder = Encoder(backbone, head, training_data.mean, training_data.std)
        initialise(encoder, generator)
        return encoder

    def predictor(
        self, backbone: Backbone, generator: torch.Generator, last_norm: bool = False
    ) -> nn.Module:
        """Two layers from outputs to outputs, every weight drawn."""
        hidden = self.hidden or 2 * backbone.width
        network = mlp(self.dim, hidden, self.dim, 2, self.head_norm, last_norm)
        initialise(network, generator)
        return network


@dataclass(frozen=True)
class BankedSSL(TwoViewSSL):
    """Options of those whose observers need negatives."""

    bank: int = option(
        4096, "outputs kept as an observer's negatives; at most half the client's images", ge=1
    )

    def random_bank(self, images: int | None, generator: torch.Generator) -> Bank:
        """A bank for a holder of `images` images."""
        return Bank.random(bank_length(self.bank, images), self.dim, generator)

    def notes(self, images: int) -> list[Note]:
        return cut_note("bank", self.bank, images, "outputs")
