"""A torch module that knows nothing of fedmia, as a backbone: its maps are caught by hooks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from fedmia.encoders._outputs import FAILURES, OutputReader, grid, is_map
from fedmia.encoders._positions import PREFIX, PositionGrid, find_grid
from fedmia.encoders.base import EncoderFacts
from fedmia.nets.base import Trunk
from fedmia.records.note import Note
from fedmia.settings.errors import InputError, opt
from fedmia.untrusted.limits import first_line

CHANNELS = (3, 1)  # tried where no number is told
STAGES = 4  # most stages that are named
RESERVED = ("avgpool", "encoder", "map")  # layers that every encoder has, or may have
LARGEST = 1024  # pixels a side that a file may name

Fired = list[tuple[str, Tensor]]


class HookedBackbone(Trunk):
    """Any module (B, C, H, W) -> vector, map or tokens, with the stages that hooks can catch.

    Args:
        module: in evaluation mode.
        named_outputs: reads its outputs.
        stages: names of the submodules that give a map, first to last. Layers are called by
            them; names that mean something else here get `.out` behind, tokens are `map`.
        prefix: where the last stage gives tokens (B, N, D): how many come before the patches.
        returned: whether the module itself returns the map, called `map`, after the stages.
        pooled: whether the vector is the mean of the last map in place of the output.
        grid: of a transformer's positions, which let it take other sizes than its own.
    """

    def __init__(
        self,
        module: nn.Module,
        named_outputs: OutputReader,
        stages: tuple[str, ...] = (),
        *,
        prefix: int | None = None,
        returned: bool = False,
        pooled: bool = False,
        grid: PositionGrid | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.sized = grid
        self.patch = 1 if grid is None else grid.patch
        self.named_outputs = named_outputs
        self.hooked = stages
        names = tuple(f"{n}.out" if n in RESERVED else n for n in stages)
        if prefix is not None:
            names = ("map",)
        self.layers = (*names, "map") if returned else names
        self.prefix = prefix
        self.pooled = pooled

    def trunk(self, x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        with capture_outputs(self.module, self.hooked) as fired:
            outputs = self.module(x) if self.sized is None else self.sized(self.module, x)
        by_layer = {self.layers[self.hooked.index(name)]: value for name, value in fired}
        vector, returned = self.named_outputs(outputs)
        if self.prefix is not None:
            tokens = by_layer["map"]
            by_layer["map"] = grid(tokens, math.isqrt(tokens.shape[1] - self.prefix))
        elif len(self.layers) > len(self.hooked):
            assert returned is not None
            by_layer["map"] = returned
        return by_layer, self.pool(by_layer[self.layers[-1]]) if self.pooled else vector


@contextmanager
def capture_outputs(module: nn.Module, names: Sequence[str]) -> Iterator[Fired]:
    """Outputs of the named submodules, as they fire in this thread while the context lasts.

    Hooks that stayed would go with copies of the module, and write where it wrote.

    Args:
        module: runs while the context lasts.
        names: of its submodules.

    Yields:
        Name and output, in the order in which they fire.
    """
    fired: Fired = []
    owner = get_ident()

    def hook(name: str, _: nn.Module, __: Any, out: Any) -> None:
        if isinstance(out, Tensor) and get_ident() == owner:
            fired.append((name, out))

    handles = [module.get_submodule(n).register_forward_hook(partial(hook, n)) for n in names]
    try:
        yield fired
    finally:
        for handle in handles:
            handle.remove()


def refuse_large(where: str, size: int) -> None:
    """Refuse a size in pixels that a file names, and whose maps would take gigabytes."""
    if not 1 <= size <= LARGEST:
        may = f"its file may name 1 to {LARGEST} (size tells any other)"
        raise InputError(f"{where} names images of {size}x{size} pixels; {may}")


@torch.no_grad()
def try_blank_pixels(
    facts: EncoderFacts, run: Callable[[Tensor], object], channels: Sequence[int]
) -> None:
    """Find blank pixels that `run` takes: of the size that the user gave, else of that of the
    facts, else of their `sizes`.

    Args:
        facts: of the encoder; their `sizes` are tried in their order. They keep the first pixels
            that were taken, and whether those of another size were, too.
        run: takes pixels (1, C, S, S).
        channels: numbers of channels to try.

    Raises:
        InputError: it takes none of them.
    """
    own = facts.load_options.size
    if own is None and facts.size is not None:
        refuse_large(facts.where, facts.size)
    side, took, errors = own or facts.size, list[Tensor](), list[str]()
    for one in dict.fromkeys((*([side] if side else ()), *facts.sizes)):
        for count in channels if not took else (took[0].shape[1],):
            blank = torch.zeros(1, count, one, one)
            try:
                run(blank)
            except InputError:
                raise
            except FAILURES as error:
                errors.append(f"{count}x{one}x{one}: {first_line(error)}")
                continue
            took.append(blank)
            break
        if len(took) == 2 or side and not took:
            break
    if not took:
        fails = f"{facts.where} fails on {'' if side else 'blank '}images of {errors[0]}"
        raise InputError(f"{fails}; {opt('data.size')} tells the size that it takes")
    facts.blank, facts.fixed_size = took[0], len(took) == 1


@torch.no_grad()
def hook_backbone(
    facts: EncoderFacts, module: nn.Module, channels: Sequence[int], *, flat_is_map: bool = False
) -> HookedBackbone:
    """The module as a backbone, its stages found by one pass of blank pixels.

    Args:
        facts: of the loading; a note says why no layers are read. It keeps what it did with
            blank pixels.
        module: pixels (B, C, H, W) to a vector, a map or tokens; it is put in evaluation mode.
        channels: numbers of channels to try.
        flat_is_map: whether an output as long as the last map is that map, flattened.

    Returns:
        The backbone.

    Raises:
        InputError: it takes no pixels, or returns neither vector, map nor tokens, or several of
            which none is known to be the embedding.
    """
    module.eval()
    try_blank_pixels(facts, module, channels)
    # A pooled map may be larger than the one it was made of: VGG's is 7x7 for any image.
    pools = (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
    names = [n for n, part in module.named_modules() if n and not isinstance(part, pools)]
    if isinstance(module, torch.jit.ScriptModule):
        facts.notes.append(Note("torchscript", {"encoder": facts.where}))
        names = []
    with capture_outputs(module, names) as fired:
        outputs = module(facts.blank)
    own = OutputReader(outputs, facts)
    vector, returned = own(outputs)
    stages, last, prefix = find_stages(fired)
    _, channel_count, side, _ = facts.blank.shape
    sized = find_grid(module, channel_count, side) if facts.fixed_size else None
    if returned is not None and returned is not last and prefix is None:
        return HookedBackbone(module, own, stages, returned=True, grid=sized)
    pooled = False
    if flat_is_map and last is not None and prefix is None:
        places = vector.shape[1] / last.shape[1]
        pooled = places > 1 and places == math.isqrt(int(places)) ** 2
    return HookedBackbone(module, own, stages, prefix=prefix, pooled=pooled, grid=sized)


def find_stages(fired: Fired) -> tuple[tuple[str, ...], Tensor | None, int | None]:
    """Stages among what fired: the last map of each resolution, at most `STAGES` of them.

    Tokens that come after the last map, as many as it has places and a few more, are what a
    transformer made of its patches: then they are the only stage.

    Returns:
        Names, the last map (or None), and the number of prefix tokens where the stage is tokens.
    """
    once = Counter(name for name, _ in fired)
    single = [(name, out) for name, out in fired if once[name] == 1]
    maps = [i for i, (_, out) in enumerate(single) if is_map(out)]
    if not maps:
        return (), None, None
    side = single[maps[-1]][1].shape[2]
    for name, out in reversed(single[maps[-1] + 1 :]):
        if out.ndim == 3 and 0 <= out.shape[1] - side**2 <= PREFIX:
            return (name,), out, out.shape[1] - side**2
    by_side: dict[int, str] = {}
    for i in maps:
        name, out = single[i]
        by_side.pop(out.shape[2], None)
        by_side[out.shape[2]] = name
    return tuple(by_side.values())[-STAGES:], single[maps[-1]][1], None
