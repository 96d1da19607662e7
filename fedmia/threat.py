"""What an attacker may do, as objects: an attack holds a view, which grants what its threat does.

`BlackBox` embeds images and counts queries. `WhiteBox` adds layers and a copy of the model.
`ClientView` adds the global models of the rounds in which the attacker took part. The views guard
against mistakes, not against malicious Python: an attack that reaches into private attributes
leaves the threat model, as any code in one process can.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedmia.errors import InputError
from fedmia.signals import PixelCache, Signals
from fedmia.ssl.augment import Augment, content_uniforms
from fedmia.ssl.base import SSLMethod, State

ACCESS = ("black_box", "white_box")
VANTAGE = ("outsider", "client", "server")
CHUNK = 1024  # images a forward pass

OutputLoss = Callable[[SSLMethod, Tensor, Tensor], Tensor]
NEGATIVES = ("held", "queue")


@dataclass(frozen=True)
class Threat:
    """Access to the model (`black_box` < `white_box`) and vantage (`outsider` < `client` <
    `server`)."""

    access: str
    vantage: str

    def __post_init__(self) -> None:
        if self.access not in ACCESS or self.vantage not in VANTAGE:
            raise ValueError(f"no such threat: {self.access}, {self.vantage}")

    def covers(self, needs: Threat) -> bool:
        """Whether a holder of this threat may run an attack that needs `needs`."""
        return ACCESS.index(self.access) >= ACCESS.index(needs.access) and VANTAGE.index(
            self.vantage
        ) >= VANTAGE.index(needs.vantage)


class BudgetError(RuntimeError):
    """An attack asked for more queries than its threat allows; nothing was computed."""


class BlackBox:
    """Queries to an encoder, and the augmentation that the attacker assumes.

    Args:
        method: the released model; its bank of negatives is the holder's own.
        augment: recipe of the attacker's views.
        seed: of the views, which depend on (seed, image content) only.
        budget: most images that may be embedded, or None.
        held: uint8 (H, C, H, W) images that the attacker holds: its own and the known ones.
        signals: rows shared with other views of the same model.
        pixels: augmented views shared with all other views.
    """

    threat = Threat("black_box", "outsider")

    def __init__(
        self,
        method: SSLMethod,
        augment: Augment,
        *,
        seed: int,
        device: torch.device,
        budget: int | None = None,
        held: Tensor | None = None,
        signals: Signals | None = None,
        pixels: PixelCache | None = None,
    ) -> None:
        self._method = method.to(device).eval()
        self._held = held
        self._signals = Signals() if signals is None else signals
        self._pixels = PixelCache(limit=0) if pixels is None else pixels
        self.augment = augment
        self.seed = seed
        self.device = device
        self.budget = budget
        self.queries = 0

    @property
    def remaining(self) -> int | None:
        """Queries left, None without a budget."""
        return None if self.budget is None else self.budget - self.queries

    def charge(self, queries: int) -> None:
        """Count `queries` images.

        Raises:
            BudgetError: more than remain; raised before anything is computed.
        """
        if self.budget is not None and self.queries + queries > self.budget:
            raise BudgetError(
                f"{queries} queries asked for, {self.remaining} of {self.budget} left"
            )
        self.queries += queries

    @torch.no_grad()
    def embed(self, pixels: Tensor) -> Tensor:
        """Encoder output (B, P) of pixels (B, C, H, W) in [0, 1]; B queries."""
        self.charge(len(pixels))
        return self._embed(pixels)

    @torch.no_grad()
    def embed_views(self, images: Tensor, views: int) -> Tensor:
        """(N, views, P) for uint8 (N, C, H, W): each image's own fixed views; N x views queries."""
        self.charge(len(images) * views)
        return self._rows(images, views)

    def _rows(self, images: Tensor, views: int) -> Tensor:
        key = ("views", views, self.seed, self.augment)
        return self._signals.get(key, images, lambda x: self._embed_views(x, views))

    def view_pixels(self, images: Tensor, views: int) -> Tensor:
        """Augmented pixels (views, N, C, H, W) in [0, 1] on the view's device; no query."""

        def draw(x: Tensor) -> Tensor:
            draws = content_uniforms(x, self.seed, views, self.augment.draws)
            uniforms = torch.from_numpy(draws).to(self.device)
            scaled = x.to(self.device).float() / 255
            return torch.stack([self.augment(scaled, uniforms[:, v]) for v in range(views)])

        return self._pixels.get((self.seed, self.augment, self.device), images, views, draw)

    def holder(self, negatives: str) -> SSLMethod:
        """A copy of the model whose bank is the holder's `queue`, or keys of the images it `held`.

        Keys of held images are queries, one an image.

        Raises:
            InputError: `held` where the attacker holds no image.
        """
        method = copy.deepcopy(self._method)
        if negatives == "held":
            self.arm(method)
        return method

    def bank_queries(self, negatives: str) -> int:
        """What the bank of `holder(negatives)` costs.

        Raises:
            InputError: `held` where the attacker holds no image.
        """
        if negatives != "held":
            return 0
        if self._held is None or not len(self._held):
            raise InputError("negatives 'held': this attacker holds no images of its own")
        return len(self._held)

    def arm(self, method: SSLMethod) -> None:
        """Fill the bank of `method` with its keys of the images held; as many queries."""
        self.charge(self.bank_queries("held"))
        self._fill(method)

    @torch.no_grad()
    def _fill(self, method: SSLMethod) -> None:
        assert self._held is not None
        method.fill_bank(self._held.to(self.device).float() / 255)

    def _embed(self, pixels: Tensor) -> Tensor:
        chunks = pixels.to(self.device).split(CHUNK)
        return torch.cat([self._method.encoder(c).float().cpu() for c in chunks])

    def _embed_views(self, images: Tensor, views: int) -> Tensor:
        per = max(1, CHUNK // views)
        out = []
        for part in images.split(per):
            pixels = self.view_pixels(part, views)
            flat = self._embed(pixels.flatten(0, 1))
            out.append(flat.view(views, len(part), -1).transpose(0, 1))
        return torch.cat(out)


class WhiteBox(BlackBox):
    """Also the weights: layers, gradients, copies."""

    threat = Threat("white_box", "outsider")

    @property
    def layers(self) -> tuple[str, ...]:
        """Names that `features` knows."""
        return self._method.encoder.layers

    @torch.no_grad()
    def features(self, images: Tensor, layers: Iterable[str]) -> dict[str, Tensor]:
        """Layer outputs of the plain images uint8 (N, C, H, W), flattened: (N, D) each; N queries.

        Raises:
            InputError: a layer that the encoder lacks.
        """
        self.charge(len(images))
        wanted = list(layers)

        def compute(x: Tensor) -> Tensor:
            scaled = x.to(self.device).float() / 255
            found = self._method.encoder.features(scaled, wanted)
            return torch.cat([found[name].flatten(1).float().cpu() for name in wanted], dim=1)

        one = torch.zeros(1, *images.shape[1:], device=self.device)
        widths = [v[0].numel() for v in self._method.encoder.features(one, wanted).values()]

        def chunked(x: Tensor) -> Tensor:
            return torch.cat([compute(part) for part in x.split(CHUNK)])

        rows = self._signals.get(("features", *wanted), images, chunked)
        return dict(zip(wanted, rows.split(widths, dim=1), strict=True))

    @torch.no_grad()
    def losses(self, images: Tensor, pairs: int, negatives: str) -> Tensor:
        """Contrastive loss (N,) of uint8 (N, C, H, W), mean over `pairs` pairs of the image's
        fixed views; 2 N pairs queries, and those of `holder(negatives)`."""
        self.charge(2 * pairs * len(images) + self.bank_queries(negatives))
        return self._paired(self._rows(images, 2 * pairs), negatives)

    @torch.no_grad()
    def views_and_losses(self, images: Tensor, views: int, negatives: str) -> tuple[Tensor, Tensor]:
        """`embed_views` (N, views, P), and `losses` (N,) of the same views paired first half with
        second; N x views queries, and those of `holder(negatives)`."""
        self.charge(views * len(images) + self.bank_queries(negatives))
        rows = self._rows(images, views)
        return rows, self._paired(rows, negatives)

    def _paired(self, rows: Tensor, negatives: str) -> Tensor:
        """Mean loss (N,) of rows (N, V, P), view i with view V//2 + i."""
        method, pairs = self.copy_method(), rows.shape[1] // 2
        if negatives == "held":
            self._fill(method)
        z = rows.to(self.device)
        each = [method.output_losses(z[:, i], z[:, pairs + i]) for i in range(pairs)]
        return torch.stack(each).mean(dim=0).cpu()

    def copy_method(self) -> SSLMethod:
        """A copy of the model that the attacker may train; the released one stays as it is."""
        return copy.deepcopy(self._method)

    def state(self) -> State:
        """Copies of the released weights."""
        return self._method.shared_state()


class ClientView(WhiteBox):
    """Also what a client saw: the global model of each of its rounds, and what it sent."""

    threat = Threat("white_box", "client")

    def __init__(
        self,
        method: SSLMethod,
        augment: Augment,
        *,
        seed: int,
        device: torch.device,
        budget: int | None = None,
        held: Tensor | None = None,
        signals: Signals | None = None,
        pixels: PixelCache | None = None,
        received: Mapping[int, State] | None = None,
        sent: Mapping[int, State] | None = None,
        targets: Tensor | None = None,
    ) -> None:
        super().__init__(
            method,
            augment,
            seed=seed,
            device=device,
            budget=budget,
            held=held,
            signals=signals,
            pixels=pixels,
        )
        self._read: dict[int, State] = {}  # keeps the states: their ids must stay their own
        self._under = Signals()
        self.received = dict(received or {})  # round -> aggregated weights after it
        self.sent = dict(sent or {})  # attack round -> crafted upload
        self.targets = targets  # uint8, the images it attacked, in its own order

    @torch.no_grad()
    def losses_under(
        self,
        states: Sequence[State],
        images: Tensor,
        pairs: int,
        negatives: str,
        name: str,
        loss: OutputLoss,
    ) -> Tensor:
        """Loss of each image under each of `states`, (len(states), N): the trajectory.

        The views are the same under every state. 2 N pairs queries a state, and those of
        `holder(negatives)`.

        Args:
            states: weights that this client holds (`received`, `sent`).
            images: uint8 (N, C, H, W).
            pairs: pairs of views over which an image's loss is averaged.
            negatives: `queue` or `held`, keyed by each state itself.
            name: of the loss; equal names share what is computed.
            loss: of (method, z1, z2) -> (B,) from outputs (B, P).
        """
        self.charge((2 * pairs * len(images) + self.bank_queries(negatives)) * len(states))
        method, rows = self.copy_method(), [torch.zeros(0, len(images))]

        def compute(x: Tensor) -> Tensor:
            if negatives == "held":
                self._fill(method)
            return self._losses(method, x, pairs, loss)

        for state in states:
            self._read[id(state)] = state
            method.load_shared(state)
            rows.append(self._under.get((id(state), pairs, negatives, name), images, compute)[None])
        return torch.cat(rows)

    def _losses(self, method: SSLMethod, images: Tensor, pairs: int, loss: OutputLoss) -> Tensor:
        columns = []
        for part in images.split(max(1, CHUNK // (2 * pairs))):
            pixels = self.view_pixels(part, 2 * pairs).flatten(0, 1)
            z = method.encoder(pixels).view(2 * pairs, len(part), -1)
            each = [loss(method, z[i], z[pairs + i]) for i in range(pairs)]
            columns.append(torch.stack(each).mean(dim=0).float().cpu())
        return torch.cat(columns)


def require(held: Threat, needs: Threat, attack: str) -> None:
    """Refuse an attack that needs more than the holder has.

    Raises:
        InputError: naming both.
    """
    if not held.covers(needs):
        raise InputError(
            f"attack '{attack}' needs {needs.access} access as {needs.vantage}, "
            f"the attacker has {held.access} as {held.vantage}"
        )
