"""What the methods without a queue share: two views, shared modules, keys, an observer's bank."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.settings.option import option
from fedmia.ssl._options import MIXES, crop_option, flip_option, head_norm_option, jitter_option
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSL, Encoder, SSLMethod, State
from fedmia.ssl.moco import info_nce


class TwoView(SSLMethod):
    """An encoder, perhaps a predictor, and perhaps a bank of negatives.

    Training never reads the bank. It is there for `output_losses`: an observer needs negatives,
    and a method that takes them from its batch has none left once the batch is gone. The bank
    holds the holder's latest outputs, random directions before the first, as a queue would.

    Args:
        encoder: its output is what observers see; a predictor is no part of it.
        predictor: applied in training alone; averaged as `predictor.`.
        bank: (K, P) of unit length, or None for a method whose reading needs no negatives.
    """

    bank: Tensor | None  # a buffer

    def __init__(
        self, encoder: Encoder, *, predictor: nn.Module | None = None, bank: Tensor | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.predictor = predictor
        self.register_buffer("bank", bank)
        self.pointer = 0
        self._latest: Tensor | None = None

    def shared_modules(self) -> Mapping[str, nn.Module]:
        if self.predictor is None:
            return {"": self.encoder}
        return {"": self.encoder, "predictor.": self.predictor}

    def remember(self, outputs: Tensor) -> None:
        """Note a batch's outputs (B, P); `after_step` puts them into the bank."""
        if self.bank is not None:
            self._latest = F.normalize(outputs.detach(), dim=1)

    @torch.no_grad()
    def after_step(self) -> None:
        """Outputs of the batch overwrite the oldest of the bank."""
        if self.bank is not None and self._latest is not None:
            K = len(self.bank)
            new = self._latest[-K:].to(self.bank.dtype)
            at = (torch.arange(len(new), device=new.device) + self.pointer) % K
            self.bank[at] = new
            self.pointer = (self.pointer + len(new)) % K
        self._latest = None

    def bank_losses(self, z1: Tensor, z2: Tensor, T: float) -> Tensor:
        """InfoNCE against the bank, summed over both directions, (B,) of outputs (B, P)."""
        if self.bank is None:
            raise ValueError(f"{type(self).__name__} was built without a bank")
        z1, z2 = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
        negatives = self.bank.to(z1.dtype)
        return info_nce(z1, z2, negatives, T) + info_nce(z2, z1, negatives, T)

    @torch.no_grad()
    def fill_bank(self, pixels: Tensor) -> None:
        """Replace the bank by outputs of `pixels` (N, C, H, W) in [0, 1]; without one: nothing."""
        if self.bank is not None:
            found = [self.encoder(part) for part in pixels.split(1024)]
            self.bank = F.normalize(torch.cat(found), dim=1)
            self.pointer = 0

    def local_state(self) -> State:
        if self.bank is None:
            return {}
        return {"bank": self.bank.detach().clone(), "pointer": torch.tensor(self.pointer)}

    def load_local(self, state: State) -> None:
        if self.bank is not None and "bank" in state:
            self.bank = state["bank"].to(self.bank.device).clone()
            self.pointer = int(state["pointer"])


class KeyedTwoView(TwoView):
    """Also a momentum encoder, which stays with the client: k <- m k + (1 - m) q.

    Args:
        momentum: m, the same at every step. Papers raise it to 1 over the run; here a client
            knows neither how many rounds it will join nor when, so it stays.
        key: `keep` the client's own between rounds, or `reset` to the received encoder.
    """

    def __init__(self, encoder: Encoder, *, momentum: float, key: str, **more: Any) -> None:
        super().__init__(encoder, **more)
        self.key_encoder = copy.deepcopy(encoder).requires_grad_(False)
        self.momentum = momentum
        self.key = key
        # Walking the modules at every step costs a tenth of a small encoder's training.
        self._keys: list[Tensor] = list(self.key_encoder.parameters())
        self._queries: list[Tensor] = list(self.encoder.parameters())

    @torch.no_grad()
    def after_step(self) -> None:
        """The momentum update of the parameters, then the bank.

        Batch norm's running statistics stay the key encoder's own, as in public code.
        """
        torch._foreach_lerp_(self._keys, self._queries, 1 - self.momentum)
        super().after_step()

    def begin_first_round(self) -> None:
        """The momentum encoder starts as a copy of the global one."""
        self.key_encoder.load_state_dict(self.encoder.state_dict())

    def begin_round(self) -> None:
        if self.key == "reset":
            self.begin_first_round()

    def local_state(self) -> State:
        kept = {f"key.{n}": t.detach().clone() for n, t in self.key_encoder.state_dict().items()}
        return kept | super().local_state()

    def load_local(self, state: State) -> None:
        """Restore the bank, and the momentum encoder where `state` holds one."""
        own = {n.removeprefix("key."): t for n, t in state.items() if n.startswith("key.")}
        if own:
            self.key_encoder.load_state_dict(own)
        super().load_local(state)


@dataclass(frozen=True)
class TwoViewSSL(SSL):
    """Options of every such method."""

    dim: int = option(128, "length of the projected vector", ge=2)
    hidden: int | None = option(
        None, "width of the heads' hidden layers (none: twice the backbone's features)", ge=1
    )
    head_norm: str = head_norm_option("layer", "heads", MIXES)
    crop_min: float | None = crop_option("the data source's")
    flip: float | None = flip_option()
    jitter: float | None = jitter_option()

    def hidden_width(self, width: int) -> int:
        """Width of the hidden layers for features of length `width`."""
        return 2 * width if self.hidden is None else self.hidden

    def views(
        self,
        *,
        crop_min: float,
        jitter: tuple[float, float, float, float],
        blur: float = 0.0,
        solarize: float = 0.0,
    ) -> Augment:
        """The paper's recipe, with this method's crop, flip and jitter where they are given.

        Args:
            crop_min: the paper's, where none is given.
            jitter: strengths of brightness, contrast, saturation and hue, at probability 0.8.
            blur, solarize: probabilities.
        """
        brightness, contrast, saturation, hue = jitter
        s = 1.0 if self.jitter is None else self.jitter
        return Augment(
            crop_min=crop_min if self.crop_min is None else self.crop_min,
            flip=0.5 if self.flip is None else self.flip,
            brightness=brightness * s,
            contrast=contrast * s,
            saturation=saturation * s,
            hue=min(hue * s, 0.5),
            jitter_p=0.8,
            gray_p=0.2,
            blur_p=blur,
            solarize_p=solarize,
        )


@dataclass(frozen=True)
class BankedSSL(TwoViewSSL):
    """Options of those whose observers need negatives."""

    bank: int = option(
        4096, "outputs kept as an observer's negatives; at most half the client's images", ge=1
    )

    def bank_length(self, images: int | None) -> int:
        """K, cut to half of the holder's images: a longer one holds each image's own output."""
        return self.bank if images is None else max(1, min(self.bank, images // 2))

    def random_bank(self, images: int | None, generator: torch.Generator) -> Tensor:
        """(K, P) random directions, the negatives until there are outputs."""
        return F.normalize(
            torch.randn(self.bank_length(images), self.dim, generator=generator), dim=1
        )

    def notes(self, images: int) -> list[str]:
        K = self.bank_length(images)
        if self.bank == K:
            return []
        return [
            f"bank cut from {self.bank} to {K}, half of {images} images, or each image would "
            "meet its own earlier output as a negative"
        ]
