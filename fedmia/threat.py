"""What an attacker may do, as objects: an attack holds a view, and a view grants what its threat does.

`BlackBox` embeds images and counts queries. `WhiteBox` adds layers and a copy of the model.
`ClientView` adds the global models of the rounds in which the attacker took part. The views guard
against mistakes, not against malicious Python: an attack that reaches into private attributes
leaves the threat model, as any code in one process can.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedmia.data.images import digests
from fedmia.errors import InputError
from fedmia.ssl.augment import Augment, content_uniforms
from fedmia.ssl.base import SSLMethod, State

ACCESS = ("black_box", "white_box")
VANTAGE = ("outsider", "client", "server")
CHUNK = 1024  # images a forward pass

ProbeLoss = Callable[[SSLMethod, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Threat:
    """Access to the model (`black_box` < `white_box`) and vantage (`outsider` < `client` < `server`)."""

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


@dataclass
class Signals:
    """Rows already computed on one model, by image: work shared by attacks, never their counts."""

    rows: dict[tuple[object, ...], dict[bytes, Tensor]] = field(default_factory=dict)

    def get(
        self, key: tuple[object, ...], images: Tensor, compute: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """(N, ...) signal of uint8 `images`, computing only the rows not yet known."""
        known = self.rows.setdefault(key, {})
        names = digests(images.numpy())
        missing = [i for i, name in enumerate(names) if name not in known]
        if missing:
            fresh = compute(images[missing])
            known.update((names[i], fresh[j]) for j, i in enumerate(missing))
        return torch.stack([known[name] for name in names])


class BlackBox:
    """Queries to an encoder, and the augmentation that the attacker assumes.

    Args:
        method: the released model; its bank of negatives is the holder's own.
        augment: recipe of the attacker's views.
        seed: of the views, which depend on (seed, image content) only.
        budget: most images that may be embedded, or None.
        signals: rows shared with other views of the same model.
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
        signals: Signals | None = None,
    ) -> None:
        self._method = method.to(device).eval()
        self._signals = Signals() if signals is None else signals
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
            raise BudgetError(f"{queries} queries asked for, {self.remaining} of {self.budget} left")
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
        return self._signals.get(("views", views), images, lambda x: self._embed_views(x, views))

    @torch.no_grad()
    def bank(self) -> Tensor:
        """Keys of the holder's own images, (K, P) of unit length: its queue. No query."""
        keys: Tensor = getattr(self._method, "queue", torch.zeros(0, 1)).detach().cpu()
        return keys

    def view_pixels(self, images: Tensor, views: int) -> Tensor:
        """Augmented pixels (views, N, C, H, W) in [0, 1] on the view's device; no query."""
        draws = content_uniforms(images, self.seed, views, self.augment.draws)
        uniforms = torch.from_numpy(draws).to(self.device)
        scaled = images.to(self.device).float() / 255
        return torch.stack([self.augment(scaled, uniforms[:, v]) for v in range(views)])

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
    def losses(self, images: Tensor, pairs: int) -> Tensor:
        """Contrastive loss (N,) of uint8 (N, C, H, W), mean over `pairs` pairs of the image's
        fixed views, against the holder's own negatives; 2 N pairs queries."""
        self.charge(2 * pairs * len(images))

        def compute(x: Tensor) -> Tensor:
            out = []
            for part in x.split(max(1, CHUNK // (2 * pairs))):
                pixels = self.view_pixels(part, 2 * pairs)
                both = zip(pixels[:pairs], pixels[pairs:], strict=True)
                each = [self._method.probe_losses(a, b).float().cpu() for a, b in both]
                out.append(torch.stack(each).mean(dim=0))
            return torch.cat(out)

        return self._signals.get(("losses", pairs), images, compute)

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
        signals: Signals | None = None,
        received: Mapping[int, State] | None = None,
        sent: Mapping[int, State] | None = None,
        targets: Tensor | None = None,
    ) -> None:
        super().__init__(
            method, augment, seed=seed, device=device, budget=budget, signals=signals
        )
        self.received = dict(received or {})  # round -> aggregated weights after it
        self.sent = dict(sent or {})  # attack round -> crafted upload
        self.targets = targets  # uint8, the images it attacked, in its own order

    @torch.no_grad()
    def losses_under(
        self, states: Sequence[State], images: Tensor, pairs: int, loss: ProbeLoss | None = None
    ) -> Tensor:
        """Loss of each image under each of `states`, (len(states), N): the trajectory.

        The views are the same under every state. 2 N pairs queries a state.

        Args:
            states: weights that this client holds (`received`, `sent`).
            images: uint8 (N, C, H, W).
            pairs: pairs of views over which an image's loss is averaged.
            loss: of (method, view1, view2) -> (B,); default the method's `probe_losses`.
        """
        self.charge(2 * pairs * len(images) * len(states))
        measure = loss or (lambda method, a, b: method.probe_losses(a, b))
        method = copy.deepcopy(self._method)
        columns = []
        for part in images.split(max(1, CHUNK // (2 * pairs))):
            pixels = self.view_pixels(part, 2 * pairs)
            both = list(zip(pixels[:pairs], pixels[pairs:], strict=True))
            rows = []
            for state in states:
                method.load_shared(state)
                each = [measure(method, a, b).float().cpu() for a, b in both]
                rows.append(torch.stack(each).mean(dim=0))
            columns.append(torch.stack(rows))
        return torch.cat(columns, dim=1)


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
