"""Tiny material for checks: textured images, a narrow MoCo, views, shadows, labels, updates."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import ActiveAttack, Attack, AttackTurn, Known
from fedmia.data.base import Request
from fedmia.data.classes import ClassNames
from fedmia.data.images import digests, rank_digests
from fedmia.data.synthetic import Synthetic
from fedmia.nets.smallnet import SmallNet
from fedmia.runtime.numerics import default_numerics
from fedmia.seeding import rng, torch_rng
from fedmia.settings.options import has_its_options, option_fields
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod, State, TrainingData
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.threat import VIEWS, BlackBox, ClientView, Labels, Shadow, Trajectory, WhiteBox

PIXELS = 8
CPU = torch.device("cpu")
AUGMENT = Augment(hue=0.1)
T = TypeVar("T")


class Case:
    """A plugin under check, and the sentences that name it.

    Args:
        plugin: an instance, taken as it is, or a class, taken with its defaults cut to `limits`.
        base: class that the plugin must extend.
        limits: largest values of options, which keep the check fast.

    Raises:
        AssertionError: its class is no dataclass of its options, or of another kind than `base`.
    """

    def __init__(self, plugin: Any, base: type, limits: Mapping[str, int]) -> None:
        self.names(plugin, base)
        cls = self.cls
        self.must(has_its_options(cls), " must be a dataclass: it lacks @dataclass")
        usual: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(cls)}
        cut = {k: v for k, v in limits.items() if isinstance(usual.get(k), int) and usual[k] > v}
        self.first = cls(**cut) if plugin is cls else plugin

    def names(self, plugin: Any, base: type) -> None:
        """Its class and name; AssertionError where it is of another kind than `base`."""
        self.cls: Any = plugin if isinstance(plugin, type) else type(plugin)
        self.name = self.cls.__name__
        self.must(issubclass(self.cls, base), f" must be a subclass of {base.__name__}")

    def new(self, **options: Any) -> Any:
        """A new one with the same options, and those of `options` that it has."""
        own = {f.name for f in dataclasses.fields(self.first)}
        return dataclasses.replace(self.first, **{k: options[k] for k in own & set(options)})

    def neutral(self, **options: Any) -> Any:
        """A new one at the neutral setting that its class declares; `options` as of `new`."""
        own = {f.name for f in dataclasses.fields(self.first)}
        unknown = [name for name in self.cls.neutral if name not in own]
        names = [f.name for f, _ in option_fields(self.cls)]
        text = f".neutral names {unknown[:1]}, none of its options; those are {names}"
        self.must(not unknown, text)
        return self.new(**{**options, **self.cls.neutral})

    def neutral_words(self) -> str:
        """Where a neutral plugin failed, and what to declare, as the end of an error."""
        if self.cls.neutral:
            return f"at its neutral setting {dict(self.cls.neutral)}; correct its `neutral`"
        names = [f.name for f, _ in option_fields(self.cls)]
        example = f'`neutral = {{"{names[0] if names else "OPTION"}": VALUE}}`'
        return f"at its defaults; declare those under which it is: {example}"

    def must(self, holds: object, text: str) -> None:
        """Raise AssertionError with the plugin's name and `text` unless `holds`.

        Args:
            holds: condition; any truth value.
            text: sentence of the error.

        Raises:
            AssertionError: the condition is false.
        """
        if not holds:
            raise AssertionError(self.name + (text if text[0] in " ." else f": {text}"))

    def refused(self, call: Callable[[], Any], kind: type[Exception], text: str) -> None:
        """AssertionError with `text` unless `call` raises an error of `kind`.

        Args:
            call: what must be refused.
            kind: class of the error.
            text: sentence of the AssertionError.
        """
        try:
            call()
        except kind:
            return
        self.must(False, text)

    def require_equal(self, before: State, after: State, text: str) -> None:
        """Refuse states that differ; `{}` in `text` is the first tensor that does.

        Args:
            before: tensors by name.
            after: tensors by name.
            text: sentence of the error, with a `{}`.
        """
        wrong = changed(before, after)
        self.must(wrong is None, text.replace("{}", str(wrong)))

    def form(self, got: State, like: State, verb: str) -> None:
        """Refuse tensors of other names, shapes or types, and those that are not finite.

        Args:
            got: tensors by name.
            like: tensors with the wanted names, shapes and types.
            verb: what made the tensors, for the error.
        """
        odd = sorted(got.keys() ^ like.keys())
        self.must(
            not odd, f"{verb} drops or adds tensors; return those received, look at {odd[:1]}"
        )
        for n, t in got.items():
            want = f"{like[n].dtype} {tuple(like[n].shape)}"
            right = f"{t.dtype} {tuple(t.shape)}" == want and bool(t.isfinite().all())
            text = f"the {verb}d {n} is of another form; return {want} of finite numbers"
            self.must(right, f"{text}, not {t.dtype} {tuple(t.shape)}")

    def declares_paper(self) -> None:
        """Refuse a class that does not say where it is from."""
        paper = getattr(self.cls, "paper", "")
        text = (
            '.paper must say where it is from, in one line: `paper: ClassVar[str] = "NAME, YEAR"`'
        )
        self.must(paper and "\n" not in paper, text)


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """The global generators of Python, NumPy and PyTorch seeded, and put back afterwards."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    for start in (random.seed, np.random.seed, torch.manual_seed):
        start(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def run(checks: Sequence[Callable[[Any], None]], make: Callable[[Any], Any], plugin: Any) -> None:
    """Every check on one case of a plugin; the global generators are left as they were.

    Args:
        checks: functions of a case that raise AssertionError.
        make: builds the case from the plugin.
        plugin: class or instance.
    """
    with default_numerics(), global_seed(0):
        case = make(plugin)
        for check in checks:
            check(case)


def call_under_seeds(make: Callable[[], T], *seeds: int) -> list[T]:
    """What `make` gives under each seed of the global generators.

    Args:
        make: called once for each seed.
        seeds: of the global generators.

    Returns:
        the results in order.
    """

    def call(seed: int) -> T:
        with global_seed(seed):
            return make()

    return list(map(call, seeds))


def everything(method: Any) -> State:
    """Copies of all that a method holds."""
    return {n: t.clone() for n, t in (method.state_dict() | method.local_state()).items()}


def changed(before: State, after: State) -> str | None:
    """The name of the first tensor that is not what it was.

    Args:
        before: tensors by name.
        after: tensors by name.

    Returns:
        the name, or None if all are equal.
    """
    return next(
        (n for n, t in before.items() if n not in after or not torch.equal(after[n], t)), None
    )


def textures(count: int, seed: int = 0) -> Tensor:
    """uint8 (count, 3, 8, 8), all of one distribution, all different.

    Args:
        count: number of images.
        seed: of their pixels.

    Returns:
        uint8 `(count, 3, 8, 8)`.
    """
    source = Synthetic(classes=5, images=max(count, 5), pixels=PIXELS)
    return torch.from_numpy(source.load(Request(None, None, None, seed)).images[:count])


def some_known(least: int = 0, swap: bool = False) -> Known:
    """Twelve known members and ten known non-members (or `least`), or the other way round.

    Args:
        least: number of images a side, if more are needed.
        swap: whether members and non-members change places.

    Returns:
        the known images.
    """
    n = max(least, 10)
    both = textures(2 * n + 2, seed=1)
    return Known(both[-n:], both[:-n]) if swap else Known(both[:-n], both[-n:])


def small_moco(seed: int = 0, images: int | None = None, **options: Any) -> MomentumContrast:
    """An untrained MoCo on a narrow SmallNet.

    Args:
        seed: of the weights.
        images: number of images of the holder; None: no cap.
        options: options of MoCo.

    Returns:
        the method, on the CPU.
    """
    spec = MoCo(**{"dim": 8, "queue": 16, "temperature": 0.2, **options})
    training_data = TrainingData((0.5,) * 3, (0.25,) * 3, images)
    return spec.build(SmallNet(width=4).build(3, PIXELS), training_data, torch_rng(seed, "test"))


class ByteSumLabels(Labels):
    """Any image has a class: the sum of its bytes modulo 3."""

    def of(self, images: Tensor) -> ClassNames:
        return images.flatten(1).sum(dim=1).remainder(3).numpy().astype(str)


def small_shadows() -> tuple[Shadow, ...]:
    """Three encoders of the attacker's own, said to be trained on half of twenty images each."""
    pool, shadows = textures(20, seed=3), []
    for i in range(3):
        order = torch.from_numpy(rng(i, "shadow").permutation(20))
        own: dict[str, Any] = {"held": pool[order[10:]], "labels": ByteSumLabels()}
        view = WhiteBox(small_moco(seed=i + 5), AUGMENT, seed=0, device=CPU, **own)
        shadows.append(Shadow(view, pool[order[:10]], pool[order[10:]]))
    return tuple(shadows)


def least_view(
    attack: Attack,
    method: SSLMethod,
    targets: Tensor,
    augment: Augment = AUGMENT,
    *,
    held: Tensor,
    shadows: Sequence[Shadow] | None = None,
    **more: Any,
) -> Any:
    """The least view that `attack` says is enough, on a copy of `method`.

    Shadows and labels are there for attacks that use shadows. A client's view holds two attack
    rounds: what the attack itself crafted, and the mean of that and the weights received. Of an
    attack that is not active it holds three models: two others, then `method` itself. A server's
    view holds the updates of four clients in two rounds.

    Args:
        attack: whose `needs` decide the view.
        method: the model under attack.
        targets: images under attack, uint8 `(N, C, H, W)`.
        augment: augmentation of the attacker's views.
        held: uint8 images that the attacker holds.
        shadows: the attacker's own encoders; None: some small ones.
        more: further arguments of the view.

    Returns:
        the view.
    """
    white = attack.needs.access == "white_box"
    cls: type[Any] = VIEWS[attack.needs.vantage] if white else BlackBox
    values: dict[str, Any] = {"seed": 0, "device": CPU, "held": held}
    if attack.asks_shadows():
        own = small_shadows() if shadows is None else shadows
        values |= {"labels": ByteSumLabels(), "shadows": own}
    values |= more
    if not isinstance(attack, ActiveAttack):
        granted = cls.granted(_SmallTraining(method), "main", 2, None) if white else {}
        view: BlackBox = cls(copy.deepcopy(method), augment, **granted, **values)
        return view
    targets = targets[rank_digests(digests(targets.numpy()))]  # an order that carries no truth
    received, sent, notes = [method.shared_state()], [], dict[str, Any]()
    known, size = Known(held[: len(held) // 2], held[len(held) // 2 :]), attack.round_size
    for number in range(2 if size is None else -(-len(targets) // size)):
        base = received[0 if size else number]  # batches have the first round each
        batch = targets if size is None else torch.roll(targets, -number * size, 0)[:size]
        at = number, 2, 0.5, notes, augment, rng(0, "craft", number)
        turn = AttackTurn(
            copy.deepcopy(method), base, base, batch, held, known, *at, alone=bool(size)
        )
        sent.append(attack.craft(turn))
        received.append({n: (t + sent[-1][n]) / 2 for n, t in base.items()})
    released = copy.deepcopy(method)
    released.load_shared(received[-1])
    position = {name: i for i, name in enumerate(digests(targets.numpy()))}

    def noted(view: ClientView, images: Tensor) -> Trajectory:
        """Read when it is asked for, so that what passes through is counted here."""
        uploads = sent if attack.reads_uploads() or size else sent[:1]
        read, mine = (
            np.stack([attack.read(view.of_weights(s), images) for s in states])
            for states in (received, uploads)
        )
        if size is None:
            return Trajectory([1, 2], read[:2], mine, read[1:])
        rows = np.array([position[name] for name in digests(images.numpy())], dtype=int)
        of, each = rows // size, np.arange(len(rows))
        return Trajectory([1], read[:1], mine[None, of, each], read[None, 1 + of, each])

    return ClientView(released, augment, noted=noted, **values)


class _SmallTraining:
    """Three rounds of a small training, of which views grant their part."""

    def __init__(self, method: SSLMethod) -> None:
        self.method = method

    def models(self, branch: str) -> dict[int, State]:
        return earlier(self.method)

    def updates(self, branch: str) -> dict[int, dict[int, State]]:
        return uploads(self.method)["updates"]

    def before(self, branch: str) -> dict[int, State]:
        return uploads(self.method)["before"]


def earlier(method: SSLMethod) -> dict[int, State]:
    """Three rounds of a trajectory that ends with `method`: its weights, ever less disturbed."""
    draw, last = torch_rng(0, "earlier"), method.shared_state()
    return {
        turn: {n: t + noise * t.std(correction=0) * torch.randn(t.shape, generator=draw)
               for n, t in last.items()}
        for turn, noise in enumerate((1.0, 0.5, 0.0))
    }  # fmt: skip


def uploads(method: SSLMethod) -> dict[str, dict[int, Any]]:
    """A server's `before` and `updates` of two rounds: the weights of `method`, disturbed by each
    of four clients."""
    draw, state = torch_rng(0, "uploads"), method.shared_state()
    updates = {
        r: {
            c: {n: t + 0.05 * torch.randn(t.shape, generator=draw) for n, t in state.items()}
            for c in range(4)
        }
        for r in (1, 2)
    }
    return {"before": dict.fromkeys(updates, state), "updates": updates}
