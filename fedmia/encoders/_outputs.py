"""What an encoder's outputs mean: which is the embedding, a vector, a map or tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from fedmia.encoders.base import EncoderFacts
from fedmia.records.note import Note
from fedmia.settings.errors import InputError, opt, unknown_name

# Names under which libraries return what users take as an image's vector, the best first. One table
# for every form of encoder.
EMBEDDINGS = (
    "image_embeds",
    "image_features",
    "pooler_output",
    "pooled_output",
    "sentence_embedding",
    "embedding",
    "embeddings",
    "features",
    "feature",
    "representation",
    "x_norm_clstoken",
    "last_hidden_state",
)
# What is none: masks, scores of classes, losses, other inputs, and what comes of a decoder.
ASIDE = re.compile(
    r"(^|[._])(masks?|ids|logits?|loss(es)?|scores?|prob(s|abilities)?|attentions?|attn|hidden_states"
    r"|text|labels?|targets?|aux(iliary)?|pred(s|ictions?)?|recon(struction)?s?|decoder|noise|scale)"
    r"([._]|\d*$)"
)
# What modules and programs raise on pixels that they do not take.
FAILURES = (RuntimeError, AssertionError, ValueError, TypeError, IndexError)


def named_tensors(outputs: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Float tensors among the outputs of a module or a program, in order, with their names: keys,
    fields or numbers from 0, `a.b` in one another; `output` where it is alone."""
    if isinstance(outputs, Tensor):
        if outputs.is_floating_point():
            yield name or "output", outputs
        return
    if isinstance(outputs, tuple | list):
        fields = getattr(outputs, "_asdict", None)
        outputs = dict(enumerate(outputs)) if fields is None else fields()
    if isinstance(outputs, Mapping):
        for key, value in outputs.items():
            yield from named_tensors(value, f"{name}.{key}" if name else str(key))


def is_map(value: Tensor) -> bool:
    """Whether a tensor is (B, D, h, w) of more than one place, a square one."""
    return value.ndim == 4 and value.shape[2] == value.shape[3] > 1


def grid(tokens: Tensor, side: int) -> Tensor:
    """(B, D, side, side) from tokens (B, prefix + side^2, D), those of the prefix left out."""
    patches = tokens[:, tokens.shape[1] - side**2 :]
    return patches.transpose(1, 2).unflatten(2, (side, side))


class OutputReader:
    """Reads the embedding off an encoder's outputs, and its map; which they are is chosen once.

    The embedding is the output that the user names, else the first name of `EMBEDDINGS`, else the
    only vector (B, D) or (B, D, 1, 1) that is not of `ASIDE`, else the last map, else the only
    tokens. The map is the embedding itself, or the last output (B, D, h, w).

    Args:
        outputs: of the module or the program, to choose by.
        facts: names it and the output that the user wants; gets a note where there are several.

    Attributes:
        vector: name of the output that is the embedding: a vector, a map or tokens.
        map: name of the map (B, D, h, w); None: there is none, or it is made of tokens.

    Raises:
        InputError: no such output, or several that may be the embedding.
    """

    def __init__(self, outputs: Any, facts: EncoderFacts) -> None:
        where, embedding = facts.where, facts.load_options.embedding
        every = dict(named_tensors(outputs))
        tensors = {n: t for n, t in every.items() if 2 <= t.ndim <= 4}
        if not tensors:
            shapes = ", ".join(str(tuple(v.shape)) for v in every.values()) or "no float tensor"
            usual = "an encoder returns vectors (B, D), maps (B, D, h, w) or tokens (B, N, D)"
            raise InputError(f"{where} returns {shapes}; {usual}")
        listed = ", ".join(
            f"'{n}' (B, {', '.join(map(str, t.shape[1:]))})" for n, t in tensors.items()
        )
        usable = [n for n in tensors if len(tensors) == 1 or not ASIDE.search(n)]
        maps = [n for n in usable if tensors[n].ndim == 4 and tensors[n].shape[2:] != (1, 1)]
        tokens = [n for n in usable if tensors[n].ndim == 3]
        vectors = [n for n in usable if n not in (*maps, *tokens)]
        known = [n for e in EMBEDDINGS for n in usable if n.rpartition(".")[2] == e]
        chosen = known[:1] or vectors or maps[-1:] or tokens
        if embedding is not None:
            if embedding not in tensors:
                raise unknown_name("output", embedding, tensors)
            chosen = [embedding]
        parts, guessed = [tensors[n] for n in (*maps, *tokens)], not known and embedding is None
        if len(chosen) != 1 or (guessed and _may_be_mask(tensors[chosen[0]], parts)):
            name = opt("encoder.embedding", "NAME")
            way = f"{name} tells which is the embedding, or return it alone"
            raise InputError(f"{where} returns {listed}: {way}")
        vector = chosen[0]
        if embedding is None and (len(tensors) > 1 or ASIDE.search(vector)):
            facts.notes.append(
                Note("output-chosen", {"encoder": where, "outputs": listed, "chosen": vector})
            )
        own = [vector] if vector in maps or is_map(tensors[vector]) else maps
        self.vector = vector
        self.map = own[-1] if own and tensors[vector].ndim != 3 else None

    def __call__(self, outputs: Any) -> tuple[Tensor, Tensor | None]:
        """The vector (B, D) and the map (B, D, h, w), if there is one.

        The vector of a map is its mean. Of tokens (B, N, D) it is the first if N - 1 is a square,
        else their mean; those of the square are the map.
        """
        tensors = dict(named_tensors(outputs))
        vector = tensors[self.vector]
        if vector.ndim == 3:
            count = vector.shape[1]
            if count > 1 and math.isqrt(count - 1) ** 2 == count - 1:
                return vector[:, 0], grid(vector, math.isqrt(count - 1))
            square = math.isqrt(count) ** 2 == count > 1
            return vector.mean(dim=1), grid(vector, math.isqrt(count)) if square else None
        one = None if self.map is None else tensors[self.map]
        return (vector.mean(dim=(2, 3)) if vector.ndim == 4 else vector), one


def _may_be_mask(vector: Tensor, beside: Sequence[Tensor]) -> bool:
    """Whether an unnamed vector may have one value a part of the image: it is no mean of the parts
    beside it, and these are tokens, of which a masked model drops some, or as many as its values.
    """
    length = vector.shape[1]
    if vector.ndim != 2 or any(length == t.shape[1 if t.ndim == 4 else 2] for t in beside):
        return False
    return any(t.ndim == 3 or length == t.shape[2] * t.shape[3] for t in beside)
