"""Under which names public code keeps an encoder in its checkpoints."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmia.options.errors import InputError, opt, suggest_nearest

Tensors = Mapping[str, Tensor]

KEYS = ("state_dict", "model", "model_state_dict")  # under which training scripts keep weights
# What wrappers add to names: those for several GPUs, of torch.compile, Opacus, Lightning, and of
# checkpointed activations. They stand at the start of a name, or anywhere in it.
ADDED = r"(_?module|_orig_mod|_forward_module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
OUTER, ANYWHERE = re.compile(f"^({ADDED})+"), re.compile(rf"(?<![^.]){ADDED}")
# Words that name the average of a network over its training.
AVERAGED = re.compile(r"(^|[._])(ema|swa|averaged?|avg|teacher|target|momentum)([._]|$)")
SHARE = 0.1  # of a table's names, with which those of a network begin alike at least
PLAIN, OPENAI = "state dict", "OpenAI's CLIP"
VISSL = "classy_state_dict.base_model.model.trunk"


@dataclass(frozen=True)
class Scheme:
    """One encoder in the files of one code base.

    Attributes:
        form: what the report calls it.
        key: by which the user asks for it (`--checkpoint-key`).
        trunk: what the names of the backbone's tensors begin with.
        head: likewise of its projection head, which may lie within the backbone.
        marks: some name begins with each of these.
        within: entry that holds it, `a.b` in one another; None: `KEYS`, the file itself, or any.
        padding: of a 3x3 first convolution, which its shape does not tell.
    """

    form: str
    key: str
    trunk: str
    head: str = ""
    marks: tuple[str, ...] = ()
    within: str | None = None
    padding: int = 1


def _solo(key: str, head: str) -> Scheme:
    return Scheme("solo-learn", key.rstrip("."), key, head, (head, "classifier."), padding=2)


# Of two schemes that fit alike the upper one is taken: of a pair of networks the one that the
# method's authors evaluate.
SCHEMES = (
    Scheme("MoCo v3", "base_encoder", "base_encoder.", "base_encoder.fc.", ("base_encoder.fc.",)),
    Scheme("MoCo v3", "base_encoder", "base_encoder.", "base_encoder.head."),
    Scheme("MoCo v3", "momentum_encoder", "momentum_encoder.", "momentum_encoder.fc.",
           ("momentum_encoder.fc.", "base_encoder.")),
    Scheme("MoCo v3", "momentum_encoder", "momentum_encoder.", "momentum_encoder.head.",
           ("momentum_encoder.head.", "base_encoder.")),
    Scheme("MoCo, CIFAR notebook", "encoder_q", "encoder_q.net.", "encoder_q.net.9."),
    Scheme("MoCo, CIFAR notebook", "encoder_k", "encoder_k.net.", "encoder_k.net.9."),
    Scheme("MoCo", "encoder_q", "encoder_q.", "encoder_q.fc."),
    Scheme("MoCo", "encoder_k", "encoder_k.", "encoder_k.fc."),
    Scheme("DINO", "teacher", "backbone.", "head.", within="teacher"),
    Scheme("DINO", "student", "backbone.", "head.", within="student"),
    _solo("backbone.", "projector."),
    _solo("momentum_backbone.", "momentum_projector."),
    _solo("encoder.", "projector."),
    _solo("backbone.", "head."),
    _solo("momentum_backbone.", "momentum_head."),
    _solo("backbone.", "decoder."),
    Scheme("backbone and projector", "backbone", "backbone.", "projector.", ("projector.",)),
    Scheme("lightly", "backbone", "backbone.", "projection_head.", ("projection_head.",)),
    Scheme("lightly", "backbone_momentum", "backbone_momentum.", "projection_head_momentum."),
    Scheme("lightly", "teacher_backbone", "teacher_backbone.", "teacher_head."),
    Scheme("lightly", "student_backbone", "student_backbone.", "student_head."),
    Scheme("SimSiam", "encoder", "encoder.", "encoder.fc.", ("encoder.fc.", "predictor.")),
    Scheme("MAE", "model", "", marks=("decoder_embed.", "mask_token")),
    Scheme("mmselfsup", "backbone", "backbone.", marks=("backbone.layers.0.",)),
    Scheme("I-JEPA", "target_encoder", "", within="target_encoder"),
    Scheme("DINOv2", "teacher", "teacher.backbone."),
    Scheme("VISSL", "trunk", "_feature_blocks.", within=VISSL),
    Scheme("VISSL", "trunk", "", within=VISSL),
    Scheme("SwAV", "model", "", "projection_head.", ("projection_head.", "prototypes.")),
    Scheme(OPENAI, "visual", "visual.", marks=("visual.", "input_resolution")),
    Scheme("open_clip", "visual", "visual.", marks=("visual.",)),
    Scheme("SimCLR", "f", "f.", "g.", ("g.",)),
    Scheme("SimCLR", "backbone", "backbone.", "backbone.fc.", ("backbone.fc.2.",)),
)  # fmt: skip

# What a name tells of the code that wrote it: what to give in place of the file alone.
ADVICE = (
    (r"(^|\.)(embeddings|embedder|vision_model)\.|(^|\.)encoder\.layers?\.\d",
     "its names are transformers': give hf:FOLDER, with its config.json beside the weights"),
    (r"^(module\.)?visual\.", "it is a CLIP's: give open_clip:NAME with {}"),
    (r"storage_tokens$|rope_embed", "give timm:NAME, as timm:vit_small_patch16_dinov3, with {}"),
    (r"_bias_table$|\.q_bias$", "give timm:NAME, as timm:beit_base_patch16_224, with {}"),
)  # fmt: skip


@dataclass(frozen=True)
class EncoderMatch:
    """The encoder that a scheme finds in a file.

    Attributes:
        scheme: the code base's way to name its tensors.
        trunk: the backbone's tensors, by their names without the scheme's prefix.
        head: those of the projection head, likewise.
        prefix: of the backbone's names in the file, for messages.
        others: names of the file's tensors that belong to neither.
        entry: of the file that holds it, `a.b` in one another; empty: the file itself.
        notes: which other networks of these names the file holds.
    """

    scheme: Scheme
    trunk: dict[str, Tensor]
    head: dict[str, Tensor]
    prefix: str
    others: list[str]
    entry: str = ""
    notes: tuple[str, ...] = ()

    def called(self, beside: EncoderMatch) -> str:
        """What tells it from a network beside it, as `--checkpoint-key` takes it."""
        place = ANYWHERE.sub("", self.prefix)
        return place.rstrip(".") if place and self.entry == beside.entry else self.entry

    def advice(self, path: object, where: str) -> str:
        """Which form of `--encoder` the names of the tensors suggest.

        Args:
            path: of the file.
            where: the form that the user gave.

        Returns:
            The advice; empty: there is none.
        """
        names, form = [*(self.prefix + n for n in self.trunk), *self.others], where.split(":")[0]
        fit = (what for name, what in ADVICE if any(re.search(name, n) for n in names))
        what = next(fit, "").format(opt("checkpoint", path))
        return "" if f"{form}:" in what else what


def find_encoder(
    contents: Any, path: Path, key: str | None, score: Callable[[EncoderMatch], float]
) -> EncoderMatch:
    """The encoder in a file, under the scheme whose names score best.

    Of several networks of these names it is the one that the authors of a known code base evaluate,
    else the average over the training.

    Args:
        contents: what the file holds, nested mappings of tensors.
        path: of the file, for errors.
        key: name of a scheme, or an entry of the file; None: any.
        score: rates what one scheme reads in one entry; 0: no such network.

    Returns:
        The best match.

    Raises:
        InputError: no tensors, nothing called `key`, or several networks of which none is known to
            be the average.
    """
    tables = dict(_tables(contents))
    if not tables:
        what = ", ".join(map(str, list(contents)[:5])) if isinstance(contents, dict) else ""
        what = what or type(contents).__name__
        raise InputError(f"weights '{path}': no named tensors in it (it holds {what})")
    places = dict.fromkeys(place for table in tables.values() for place in _places(table))
    schemes = [*SCHEMES, *(Scheme(PLAIN, place, place) for place in places)]
    if key is not None:
        schemes = [s for s in SCHEMES if s.key == key]
        schemes += [Scheme(PLAIN, key, place, within=key) for place in places]
        schemes += [Scheme(PLAIN, key, p) for p in (f"{key}.", *places) if p.startswith(f"{key}.")]
    best = _best_match(schemes, tables, score)
    if best is None or (key is not None and best[0] == 0):
        known = sorted({s.key for s in SCHEMES if any(o.trunk for o in _read_scheme(s, tables))})
        more = f" (it has {', '.join(known)})" if known else ""
        raise InputError(
            f"{opt('checkpoint_key', key)}: no such network in {path.name}"
            f"{suggest_nearest(str(key), known)}{more}"
        )
    return best[1] if key is not None else _settle(best, tables, score)


Score = Callable[[EncoderMatch], float]


def _best_match(
    schemes: Iterable[Scheme], tables: Mapping[str, dict[str, Tensor]], score: Score
) -> tuple[float, EncoderMatch] | None:
    """The first match of the highest score, with it; None: no scheme reads any."""
    best: tuple[float, EncoderMatch] | None = None
    for scheme in schemes:
        for one in _read_scheme(scheme, tables):
            points = score(one)
            if best is None or points > best[0]:
                best = points, one
    return best


def _settle(
    best: tuple[float, EncoderMatch], tables: Mapping[str, dict[str, Tensor]], score: Score
) -> EncoderMatch:
    """Which of the networks of the best one's names is taken, with a note of the others."""
    match, known = best[1], best[1].scheme.form != PLAIN
    others = list(_others(best, tables, score)) if best[0] else []
    if not others:
        return match
    names = {id(match): match.called(others[0])} | {id(one): one.called(match) for one in others}
    # Of a pair that the authors of a code base name, the choice is theirs.
    theirs = {(s.trunk, s.within) for s in SCHEMES if known and s.form == match.scheme.form}
    averages = [
        one for one in (match, *others)
        if AVERAGED.search(names[id(one)])
        and theirs.isdisjoint((ANYWHERE.sub("", one.prefix), w) for w in (None, one.entry))
    ]  # fmt: skip
    listed = ", ".join(f"'{name}'" for name in names.values())
    if len(averages) > 1 or not (averages or known):
        raise InputError(
            f"{opt('checkpoint_key')} must name one of the file's networks, which have the same "
            f"tensors: {listed}"
        )
    choice = averages[0] if averages else match
    note = f"The file holds the networks {listed}: '{names[id(choice)]}' was taken; "
    return replace(choice, notes=(f"{note}{opt('checkpoint_key')} takes another.",))


def _others(
    best: tuple[float, EncoderMatch], tables: Mapping[str, dict[str, Tensor]], score: Score
) -> Iterator[EncoderMatch]:
    """Networks of the same names elsewhere in the file, that score as much; of other values."""
    points, match = best
    scheme = match.scheme
    for entry, table in tables.items():
        short = {name: ANYWHERE.sub("", name) for name in table}
        for place in _places(table):
            base = scheme.trunk if scheme.head.startswith(scheme.trunk) else ""
            outer = place if base else place.removesuffix(scheme.trunk)
            head = scheme.head and outer + scheme.head.removeprefix(base)
            for one in _split(replace(scheme, trunk=place, head=head), table, short):
                both = ((match.trunk[n], t) for n, t in one.trunk.items() if n in match.trunk)
                # A tensor with NaN is itself, and equals nothing.
                if score(one) >= points and not all(a is t or torch.equal(a, t) for a, t in both):
                    yield replace(one, entry=entry)
                    break


def _places(table: Tensors) -> list[str]:
    """What many names of a table begin with, with and without what wrappers add; "" is first."""
    names = [*table, *(ANYWHERE.sub("", name) for name in table)]
    starts = Counter(name[: dot.end()] for name in names for dot in re.finditer(r"^|\.", name))
    return [start for start, count in starts.items() if count >= SHARE * len(table)]


def _tables(contents: Any, entry: str = "") -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Named tensors by the entry that holds them, `a.b` in one another; the file itself is ``."""
    if not isinstance(contents, Mapping):
        return
    if tensors := {n: t for n, t in contents.items() if isinstance(n, str) and _weight(t)}:
        yield entry, tensors
    for name, inner in contents.items():
        if isinstance(name, str):
            yield from _tables(inner, f"{entry}.{name}" if entry else name)


def _weight(value: object) -> bool:
    return isinstance(value, Tensor) and not value.is_sparse


def _read_scheme(scheme: Scheme, tables: Mapping[str, dict[str, Tensor]]) -> Iterator[EncoderMatch]:
    """Each entry of the file as `scheme` reads it, with and without the outermost wrappers."""
    places = dict.fromkeys((*KEYS, "", *tables)) if scheme.within is None else (scheme.within,)
    for place, table in ((place, tables[place]) for place in places if place in tables):
        spellings: list[dict[str, str]] = []
        for added in (ANYWHERE, OUTER, None):
            names = {n: n if added is None else added.sub("", n) for n in table}
            if names in spellings or len(set(names.values())) < len(names):
                continue
            spellings.append(names)
            if all(any(n.startswith(m) for n in names.values()) for m in scheme.marks):
                yield from (replace(one, entry=place) for one in _split(scheme, table, names))


def _split(scheme: Scheme, table: Tensors, names: Mapping[str, str]) -> Iterator[EncoderMatch]:
    """Backbone, head and the rest; then, where the head lies in the backbone, both as one: the
    module to fill may have it too."""
    inside = scheme.head.startswith(scheme.trunk) and bool(scheme.head)
    for apart in (scheme.head, "") if inside else (scheme.head,):
        trunk, head, others, prefix = {}, {}, [], scheme.trunk
        for full, name in names.items():
            if apart and name.startswith(apart):
                head[name.removeprefix(apart)] = table[full]
            elif name.startswith(scheme.trunk):
                trunk[name.removeprefix(scheme.trunk)] = table[full]
                prefix = full.removesuffix(name.removeprefix(scheme.trunk))
            else:
                others.append(full)
        if trunk:
            yield EncoderMatch(scheme, trunk, head, prefix, others)
