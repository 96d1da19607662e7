"""Weights from a file into an architecture: every tensor must find its place."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from torch import Tensor, nn

from fedmia.encoders import _resnet, _vit
from fedmia.encoders._positions import is_positions, resample_table
from fedmia.encoders._preprocessing import read_settings
from fedmia.encoders.base import EncoderFacts, Weights
from fedmia.encoders.reparametrised import join_parts
from fedmia.encoders.schemes import OPENAI, EncoderMatch, Tensors, find_encoder
from fedmia.encoders.weight_checks import check_initialised
from fedmia.records.note import Note
from fedmia.settings.errors import InputError, opt
from fedmia.untrusted.torchfile import read_weights

PROTOTYPES = "last_layer."  # of DINO: what comes after the projection
STATISTICS = ("running_mean", "running_var")
COUNTERS = "num_batches_tracked"  # an average may lack them
# What a trunk's table holds beside what the features come from: heads, what pretraining alone
# uses, queues, constants. A norm before a head may shape features.
ASIDE = re.compile(
    r"(?!.*norm)(fc|heads?|classifier|(last_)?linear|(lm|cls|mlp)_head|projector|projection(_head)?"
    r"|predictor|prediction_head|prototypes|last_layer|aux\d|AuxLogits)\."
    r"|(decoder|queue)(_\w+)?(\.|$)|local_cls_norm\."
    r"|(.*\.)?(mask_token|bias_mask|rope_embed.periods|attn_mask|relative_coords_table)$"
)


def load_checkpoint(facts: EncoderFacts, module: nn.Module, *, adapt: bool = False) -> Weights:
    """Load every parameter and running statistic of `module` from the checkpoint.

    Tables of positions are resampled to the module's grid. The statistics of a batch norm that is
    split in parts are averaged, as its code does when it evaluates.

    Args:
        facts: names the checkpoint.
        module: the network, changed in place.
        adapt: whether a ResNet's stem and norms, and a ViT's heads, may become those of the file.

    Returns:
        What was loaded.

    Raises:
        InputError: the file lacks a tensor and the user does not allow that, or has it in another
            shape; its settings name pixels that are not audited.
    """
    path, notes = facts.load_options.checkpoint, facts.notes
    assert path is not None
    check_initialised(facts.where, module)
    own = module.state_dict()
    content, where = read_weights(path), f"weights '{path}'"
    read_settings(facts, where, content, own.keys())
    content = join_parts(content, where, own.keys(), notes)
    match = find_encoder(
        content, path, facts.load_options.key, lambda one: _match_names(one, module, own)[0]
    )
    _, renamed, how = _match_names(match, module, own)
    notes += how
    if adapt:
        relu = _resnet.canonical_names(match.trunk)[1]
        _resnet.adapt(module, renamed, relu, match.scheme.padding, facts)
        notes += _vit.set_heads(module, renamed, match.scheme.form)
        notes += _vit.use_quick_gelu(module) if match.scheme.form == OPENAI else []
        own = module.state_dict()
    return load_tensors(facts, module, match, renamed)


def load_tensors(
    facts: EncoderFacts, module: nn.Module, match: EncoderMatch, tensors: Tensors
) -> Weights:
    """Load tensors into a module by the module's names.

    Args:
        facts: names the checkpoint.
        module: the network, changed in place.
        match: the encoder in the file.
        tensors: its tensors, by the names of the module.

    Returns:
        What was loaded.

    Raises:
        InputError: as `load_checkpoint`.
    """
    own, ready, notes = module.state_dict(), dict[str, Tensor](), facts.notes
    notes += match.notes
    for name, tensor in tensors.items():
        if name in own and (fitted := _fit_shape(name, tensor, own[name])) is not None:
            ready[name] = fitted
            if fitted.shape != tensor.shape and is_positions(name):
                notes.append(Note("positions-resampled", {"name": name}))
    extra = _check(facts, own, tensors, ready, match)
    facts.note_precision(ready.values())
    module.load_state_dict(ready, strict=False)
    head, unread = read_head(match.head), [n for n in match.head if n.startswith(PROTOTYPES)]
    if match.head and head is None:
        notes.append(Note("unknown-head"))
        unread = list(match.head)
    names = {id(t): match.prefix + n for n, t in match.trunk.items()}
    dropped = [names.get(id(t), n) for n, t in tensors.items() if n not in ready]
    if extra:
        notes.append(Note("weights-without-place", {"weights": len(extra), "encoder": facts.where}))
    missing = [n for n, t in own.items() if t.is_floating_point() and n not in ready]
    if missing:
        notes.append(Note("weights-missing", {"weights": len(missing)}))
    dropped += [match.head_place + n for n in unread] + match.others
    count = len(ready) + len(match.head) - len(unread)
    return Weights(match.scheme.form, count, tuple(dropped), tuple(missing), head)


def _match_names(
    match: EncoderMatch, module: nn.Module, own: Tensors
) -> tuple[int, Tensors, list[Note]]:
    """How many of a trunk's tensors get names of `own`, all by the names that fit best, notes."""
    trunk = match.trunk
    canonical = _resnet.canonical_names(trunk)[0], _vit.canonical_names(trunk)
    ways: list[tuple[Tensors, list[Note]]] = [(tensors, []) for tensors in (trunk, *canonical)]
    for prefix in dict.fromkeys(("", match.place)):
        names = {prefix + n: t for n, t in trunk.items()}
        ways.append((convert_names(module, names), [Note("names-converted")]))
    own_names = {n for n in own if not n.endswith(COUNTERS)}
    return max(((len(own_names & g.keys()), g, how) for g, how in ways), key=lambda way: way[0])


def convert_names(module: nn.Module, tensors: Tensors) -> dict[str, Tensor]:
    """`tensors` by the names of a model of timm's, as its own code converts those of public code.

    Empty where it has no converter. What that leaves out keeps its name, and what would make
    another network: patches of another size, a last norm that moves behind the pooling.

    Args:
        module: a model of timm's, or any other.
        tensors: by the names of a file.

    Returns:
        The tensors by the module's names.
    """
    try:
        with redirect_stdout(StringIO()):  # some print
            family: Any = sys.modules[type(module).__module__]
            converted = family.checkpoint_filter_fn(dict(tensors), module)
    except Exception:  # it has none, or none for these names
        return {}
    before = {_storage(t) for t in tensors.values()}
    converted = {
        n: t
        for n, t in converted.items()
        if (t.ndim < 4 or _storage(t) in before)
        and (not n.startswith("fc_norm.") or any(other.endswith(n) for other in tensors))
    }
    after = {_storage(t) for t in converted.values()}
    return {n: t for n, t in tensors.items() if _storage(t) not in after} | converted


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _fit_shape(name: str, tensor: Tensor, own: Tensor) -> Tensor | None:
    """The tensor in the shape that is needed, or None where it has another meaning."""
    if tensor.shape == own.shape:
        return tensor
    if is_positions(name) and tensor.ndim == own.ndim and tensor.shape[-1] == own.shape[-1]:
        return resample_table(tensor, own.shape[-2])
    if name.endswith(STATISTICS) and own.ndim and len(tensor) % len(own) == 0:
        return tensor.view(-1, len(own)).mean(dim=0)
    return None


def _check(
    facts: EncoderFacts, own: Tensors, tensors: Tensors, ready: Tensors, match: EncoderMatch
) -> list[str]:
    """What shapes features and finds no place; an InputError for the first tensor that is missing
    or of another shape, or for these."""
    where, load_options = facts.where, facts.load_options
    extra = [
        n
        for n, t in tensors.items()  # counters and zeros shape no features
        if n not in ready
        and t.is_floating_point()
        and not ASIDE.match(n)
        and not (n.endswith("bias") and not t.any())
    ]
    file = f"weights '{load_options.checkpoint}'"
    needed = [n for n, t in own.items() if t.is_floating_point()]
    fitting = sum(n in ready for n in needed)
    way, lax = (
        match.advice(load_options.checkpoint, where),
        f"; {opt('encoder.allow_missing')} leaves ",
    )
    for name in needed:
        if name in ready or (name not in tensors and load_options.allow_missing and fitting):
            continue
        wrong = f"is missing in '{match.entry}'" if match.entry else "is missing"
        strays = [f"; '{stray}' finds no place" for stray in extra[:1]]
        more = "".join(strays) + (f"{lax}it random" if fitting else "")
        if name in tensors:
            shape = tuple(tensors[name].shape)
            wrong, more = f"is {shape}, {where} needs {tuple(own[name].shape)}", ""
        fit = f"({fitting} of {len(needed)} tensors fit){way and '; ' + way}"
        raise InputError(f"{file}: tensor '{match.prefix + name}' {wrong} {fit}{more}")
    if extra and not load_options.allow_missing:
        listed = ", ".join(extra[:3]) + ", .." * (len(extra) > 3)
        places = f"{len(extra)} of its trunk's tensors find no place in {where} ({listed})"
        way = way or "name that: timm:NAME or package.module:factory"
        raise InputError(f"{file}: {places}: it is of another network; {way}{lax}them out")
    return extra


def read_head(tensors: Tensors) -> nn.Module | None:
    """The head, its weights loaded, or None where the tensors are not of linear and batch norm
    layers, bare or numbered in an nn.Sequential.

    A number without tensors is an activation: ReLU, or GELU where prototypes follow, as in DINO.
    The output is the projection; prototypes are left out.
    """
    act = nn.GELU if any(n.startswith(PROTOTYPES) for n in tensors) else nn.ReLU
    # Code bases call the nn.Sequential inside the head so.
    short = {n.removeprefix("layers.").removeprefix("mlp."): t for n, t in tensors.items()}
    own = {n: t for n, t in short.items() if not n.startswith(PROTOTYPES)}
    if "weight" in own:
        own = {f"0.{n}": t for n, t in own.items()}
    groups: dict[int, dict[str, Tensor]] = {}
    for name, tensor in own.items():
        number, _, rest = name.partition(".")
        if not number.isdigit() or "." in rest:
            return None
        groups.setdefault(int(number), {})[rest] = tensor
    if not groups:
        return None
    head = nn.Sequential()
    for i in range(max(groups) + 1):
        layer = _layer(groups[i]) if i in groups else act()
        if layer is None:
            return None
        head.append(layer)
    head.load_state_dict(own, strict=False)
    return head.eval()


def _layer(tensors: Tensors) -> nn.Module | None:
    weight, mean = tensors.get("weight"), tensors.get("running_mean")
    if mean is not None:
        return nn.BatchNorm1d(len(mean), affine=weight is not None)
    if weight is None or weight.ndim != 2:
        return None
    return nn.Linear(weight.shape[1], weight.shape[0], bias="bias" in tensors)
