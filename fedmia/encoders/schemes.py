"""Under which names public code keeps an encoder in its checkpoints."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmia.records.note import Note
from fedmia.settings.errors import InputError, opt, suggest_nearest

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
STARTS = re.compile(r"^|\.")


@dataclass(frozen=True)
class Scheme:
    """One encoder in the files of one code base.

    By `Scheme("MoCo", "encoder_q", "encoder_q.", "encoder_q.fc.")`, a file with
    `module.encoder_q.layer1.0.conv1.weight` and `module.encoder_q.fc.0.weight` has the backbone's
    `layer1.0.conv1.weight` and the head's `0.weight`: `module.` is a wrapper's.

    Attributes:
        form: what the report calls it.
        key: by which the user asks for it (`--checkpoint-key`).
        trunk: what the names of the backbone's tensors begin with.
        heads: likewise of its projection head, which may lie within the backbone; `a. b.`: either.
        marks: some name begins with each of these, `a. b.`: with one of them.
        within: entry that holds it, `a.b` in one another; None: any.
        padding: of a 3x3 first convolution, which its shape does not tell.
    """

    form: str
    key: str
    trunk: str
    heads: str = ""
    marks: tuple[str, ...] = ()
    within: str | None = None
    padding: int = 1


def _solo(key: str, heads: str) -> Scheme:
    return Scheme("solo-learn", key, f"{key}.", heads, (heads, "classifier."), padding=2)


# Of two networks that fit alike the upper one is taken: of a pair the one that the method's authors
# evaluate.
SCHEMES = (
    Scheme("MoCo v3", "base_encoder", "base_encoder.", "base_encoder.fc. base_encoder.head."),
    Scheme(
        "MoCo v3",
        "momentum_encoder",
        "momentum_encoder.",
        "momentum_encoder.fc. momentum_encoder.head.",
        ("base_encoder.",),
    ),
    Scheme("MoCo, CIFAR notebook", "encoder_q", "encoder_q.net.", "encoder_q.net.9."),
    Scheme("MoCo, CIFAR notebook", "encoder_k", "encoder_k.net.", "encoder_k.net.9."),
    Scheme("MoCo", "encoder_q", "encoder_q.", "encoder_q.fc."),
    Scheme("MoCo", "encoder_k", "encoder_k.", "encoder_k.fc."),
    Scheme("DINO", "teacher", "backbone.", "head.", within="teacher"),
    Scheme("DINO", "student", "backbone.", "head.", within="student"),
    _solo("backbone", "projector. head. decoder."),
    _solo("momentum_backbone", "momentum_projector. momentum_head."),
    _solo("encoder", "projector."),
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
    Scheme(OPENAI, "visual", "visual.", marks=("input_resolution",)),
    Scheme("open_clip", "visual", "visual."),
    Scheme("SimCLR", "f", "f.", "g.", ("g.",)),
    Scheme("SimCLR", "backbone", "backbone.", "backbone.fc.", ("backbone.fc.2.",)),
)

# What a name tells of the code that wrote it: what to give in place of the file alone.
ADVICE = (
    (
        r"(^|\.)(embeddings|embedder|vision_model)\.|(^|\.)encoder\.layers?\.\d",
        "its names are transformers': give hf:FOLDER, with its config.json beside the weights",
    ),
    (r"^(module\.)?visual\.", "it is a CLIP's: give open_clip:NAME with {}"),
    (r"storage_tokens$|rope_embed", "give timm:NAME, as timm:vit_small_patch16_dinov3, with {}"),
    (r"_bias_table$|\.q_bias$", "give timm:NAME, as timm:beit_base_patch16_224, with {}"),
)


@dataclass(frozen=True)
class EncoderMatch:
    """A network in a file, as a scheme reads it.

    Attributes:
        scheme: the code base's way to name its tensors.
        entry: of the file that holds it, `a.b` in one another; empty: the file itself.
        root: what the code base's own names stand behind, `model.`; empty: nothing.
        place: what the names of the backbone begin with, without what wrappers add.
        trunk: the backbone's tensors, by their names behind that.
        head: those of the projection head, by their names behind `head_place`.
        head_place: as `place`, of the head.
        prefix: of the backbone's names in the file, for messages.
        others: names of the tensors beside them that belong to neither.
        notes: which other networks of these names the file holds.
    """

    scheme: Scheme
    entry: str
    root: str
    place: str
    trunk: dict[str, Tensor]
    head: dict[str, Tensor]
    head_place: str
    prefix: str
    others: list[str]
    notes: tuple[Note, ...] = ()

    def distinct_key(self, beside: EncoderMatch) -> str:
        """The `--checkpoint-key` that tells it from a network beside it."""
        return self.place.rstrip(".") if self.place and self.entry == beside.entry else self.entry

    def pair(self) -> object:
        """What it has in common with the other network of a code base's pair."""
        entry = "" if self.scheme.within else self.entry
        return id(self) if self.scheme.form == PLAIN else (self.scheme.form, self.root, entry)

    def equals(self, other: EncoderMatch) -> bool:
        """Whether tensors of the same names have the same values."""
        both = ((other.trunk[n], t) for n, t in self.trunk.items() if n in other.trunk)
        # A tensor with NaN is itself, and equals nothing.
        return all(a is t or torch.equal(a, t) for a, t in both)

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
        what = next(fit, "").format(opt("encoder.checkpoint", path))
        return "" if f"{form}:" in what else what


def find_encoder(
    contents: Any, path: Path, key: str | None, score: Callable[[EncoderMatch], float]
) -> EncoderMatch:
    """The network in a file whose names score best.

    Of several networks of these names it is the one that the authors of a known code base evaluate,
    else the average over the training.

    Args:
        contents: what the file holds, nested mappings of tensors.
        path: of the file, for errors.
        key: of a scheme, of an entry of the file, or what names begin with; None: any.
        score: rates a network; 0: it is none that is wanted.

    Returns:
        The best match.

    Raises:
        InputError: no tensors, nothing called `key`, or several networks of which none is known to
            be the average.
    """
    tables = dict(tables_of(contents))
    if not tables:
        what = ", ".join(map(str, list(contents)[:5])) if isinstance(contents, dict) else ""
        what = what or type(contents).__name__
        raise InputError(f"weights '{path}': no named tensors in it (it holds {what})")
    # The schemes' own names first: a stable sort keeps the order of the file within each.
    ranks = {scheme: rank for rank, scheme in enumerate(SCHEMES)}
    every = sorted(_matches(tables), key=lambda m: (m.root, ranks.get(m.scheme, len(ranks))))
    rated = [
        (score(match), match)
        for match in every
        if key in (None, match.scheme.key, match.entry) or match.place.startswith(f"{key}.")
    ]
    best = max((points for points, _ in rated), default=0)
    if key is not None and not best:
        known = sorted({match.scheme.key for match in every if match.scheme in ranks})
        more = f" (it has {', '.join(known)})" if known else ""
        raise InputError(
            f"{opt('encoder.checkpoint_key', key)}: no such network in {path.name}"
            f"{suggest_nearest(str(key), known)}{more}"
        )
    networks: list[EncoderMatch] = []
    for points, match in rated:
        if points == best and not any(match.equals(other) for other in networks):
            networks.append(match)
    return networks[0] if key is not None or not best else _choose(networks)


def _choose(networks: list[EncoderMatch]) -> EncoderMatch:
    """Which of the networks of the same names is taken, with a note of the others."""
    first = networks[0]
    if len(networks) == 1:
        return first
    names = {id(one): one.distinct_key(networks[1] if one is first else first) for one in networks}
    # Of a pair that the authors of a code base name, the choice is theirs: the first.
    own = list({one.pair(): one for one in reversed(networks)}.values())
    averages = [one for one in own if AVERAGED.search(names[id(one)])]
    choices = averages if len(own) > 1 else [first]
    if len(choices) != 1 and (choices or first.scheme.form == PLAIN):
        listed = ", ".join(f"'{name}'" for name in names.values())
        raise InputError(
            f"{opt('encoder.checkpoint_key')} must name one of the file's networks, which "
            f"have the same tensors: {listed}"
        )
    choice = (choices or [first])[0]
    note = Note("network-chosen", {"networks": list(names.values()), "chosen": names[id(choice)]})
    return replace(choice, notes=(note,))


def tables_of(contents: Any, entry: str = "") -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Named tensors of a file, by the entry that holds them.

    Args:
        contents: of the file, or of the entry.
        entry: `a.b` in one another; empty: the file itself.

    Yields:
        Each entry with tensors, and these by their names.
    """
    if not isinstance(contents, Mapping):
        return
    entries = {name: value for name, value in contents.items() if isinstance(name, str)}
    tensors = {n: t for n, t in entries.items() if isinstance(t, Tensor) and not t.is_sparse}
    if tensors:
        yield entry, tensors
    for name, inner in entries.items():
        yield from tables_of(inner, f"{entry}.{name}" if entry else name)


def _matches(tables: Mapping[str, dict[str, Tensor]]) -> Iterator[EncoderMatch]:
    """What may be a network: all that begins alike in an entry, with and without wrappers."""
    for entry in (place for place in dict.fromkeys((*KEYS, "", *tables)) if place in tables):
        table, spellings = tables[entry], list[dict[str, str]]()
        for added in (ANYWHERE, OUTER, None):
            names = {n: n if added is None else added.sub("", n) for n in table}
            if names in spellings or len(set(names.values())) < len(names):
                continue
            spellings.append(names)
            starts = Counter(n[: dot.end()] for n in names.values() for dot in STARTS.finditer(n))
            for place, count in starts.items():
                if count >= SHARE * len(table):
                    yield from _split(entry, place, table, names)


def _split(
    entry: str, place: str, table: Tensors, names: Mapping[str, str]
) -> Iterator[EncoderMatch]:
    """Backbone, head and the rest; then, where the head lies in the backbone, both as one: the
    module to fill may have it too."""
    scheme, root = _find_scheme(entry, place, names.values())
    begins = _begins(names.values(), root, scheme.heads)
    for apart in dict.fromkeys((begins, "")) if begins.startswith(place) else (begins,):
        trunk, head, others, prefix = {}, {}, [], place
        for full, name in names.items():
            if apart and name.startswith(apart):
                head[name.removeprefix(apart)] = table[full]
            elif name.startswith(place):
                trunk[name.removeprefix(place)] = table[full]
                prefix = full.removesuffix(name.removeprefix(place))
            else:
                others.append(full)
        if trunk:
            yield EncoderMatch(scheme, entry, root, place, trunk, head, apart, prefix, others)


def _find_scheme(entry: str, place: str, names: Collection[str]) -> tuple[Scheme, str]:
    """The first scheme whose backbone is at `place`, and its root; else a plain one."""
    for scheme in SCHEMES:
        root = place.removesuffix(scheme.trunk)
        fits = place == scheme.trunk or f".{place}".endswith(f".{scheme.trunk}")
        fits = fits and scheme.within in (None, entry)
        if fits and all(_begins(names, root, mark) for mark in scheme.marks):
            return scheme, root
    return Scheme(PLAIN, "", place), ""


def _begins(names: Collection[str], root: str, alternatives: str) -> str:
    """The first of the alternatives, behind `root`, with which a name begins; empty: none."""
    starts = (root + start for start in alternatives.split())
    return next((start for start in starts if any(n.startswith(start) for n in names)), "")
