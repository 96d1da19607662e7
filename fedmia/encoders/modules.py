"""Make a `LoadedEncoder` of any torch module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from fedmia.encoders import checkpoint, untrained
from fedmia.encoders._outputs import FAILURES, named_tensors
from fedmia.encoders.base import EncoderFacts, LoadedEncoder, Weights
from fedmia.encoders.weight_checks import check_initialised, refuse_zeros
from fedmia.nets.base import Backbone
from fedmia.records.note import Note
from fedmia.seeding import torch_rng
from fedmia.settings.errors import InputError, opt
from fedmia.ssl import TwoView
from fedmia.ssl.bank import Bank
from fedmia.ssl.base import Encoder, SSLMethod, State
from fedmia.ssl.moco import MoCoV2
from fedmia.untrusted.limits import first_line

WRAPPERS = (nn.DataParallel, DistributedDataParallel, AveragedModel)
BANK = 1024  # random negatives before `fill_bank`


def build_seeded(make: Callable[[], Any], seed: int) -> Any:
    """What `make` builds when torch's global generator, its only source, starts from `seed`.

    The generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def build(facts: EncoderFacts, make: Callable[[], Any], *passed: type[Exception]) -> Any:
    """What a library makes, with weights of the user's seed.

    Args:
        facts: of the loading: its seed, and what errors call the module.
        make: calls the library.
        passed: errors that are let through.

    Returns:
        What `make` returns.

    Raises:
        InputError: it makes nothing.
    """
    try:
        return build_seeded(make, facts.load_options.seed)
    except passed:
        raise
    except (ImportError, OSError, LookupError, *FAILURES) as error:
        raise InputError(f"{facts.where} cannot be built: {first_line(error)}") from None


def strip_wrappers(module: nn.Module) -> nn.Module:
    """The module inside torch.compile, DataParallel, DistributedDataParallel or AveragedModel."""
    inner = module.module if isinstance(module, WRAPPERS) else getattr(module, "_orig_mod", None)
    return module if inner is None else strip_wrappers(inner)


def copy_module(module: nn.Module, where: str) -> Any:
    """A copy without wrappers, that trains whatever mode of gradients it was made in.

    What it keeps of an earlier pass (activations, the weight of an old `weight_norm`) is detached:
    torch copies no tensor within a graph.

    Args:
        module: stays as it is.
        where: what errors call it.

    Returns:
        The copy.

    Raises:
        InputError: it holds what Python cannot copy.
    """
    module = strip_wrappers(module)
    check_initialised(where, module)
    try:
        every = [t for part in module.modules() for _, t in named_tensors(vars(part))]
        detached = {id(t): t.detach().clone() for t in every if not t.is_leaf}
        copied = copy.deepcopy(module, detached)
    except Exception as error:  # whatever the user's own attributes raise
        factory = opt("encoder.name", "package.module:factory")
        way = f"a function that makes it can be audited: {factory}"
        raise InputError(f"{where} cannot be copied ({first_line(error)}); {way}") from None
    for part in copied.modules():
        for name, child in list(part.named_children()):
            if (inner := strip_wrappers(child)) is not child:
                setattr(part, name, inner)
    return copied


class LoadedEncoderMethod(TwoView):
    """A foreign encoder and a bank of negatives; it is attacked, never trained here.

    Args:
        encoder: of pixels (B, C, H, W), to vectors (B, P).
        width: P, length of the encoder's output.
        seed: of the unit vectors that the bank holds at first.

    Its temperature is MoCo v2's: what the encoder was trained with is not known.
    """

    bank: Bank

    def __init__(self, encoder: Encoder, width: int, seed: int) -> None:
        bank = Bank.random(BANK, width, torch_rng(seed, "released", "bank"))
        super().__init__(encoder, MoCoV2(), bank=bank)

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        raise RuntimeError("a released encoder is not trained here")

    def local_state(self) -> State:
        return {}


def load_white_box(
    facts: EncoderFacts,
    network: Backbone | Encoder | SSLMethod,
    access: str = "white_box",
) -> LoadedEncoder:
    """The encoder with its layers and weights at hand; its control has permuted weights.

    Args:
        facts: of the loading, in which blank pixels were tried; notes say what became of a head.
        network: a backbone, which gets the head that came with its weights, an encoder, or a
            method with its own loss.
        access: `black_box` where no gradient reaches its weights.

    Returns:
        The encoder.

    Raises:
        InputError: every weight is zero.
    """
    load_options = facts.load_options
    refuse_zeros(facts.where, network.parameters())
    if isinstance(network, Backbone):
        own, notes = facts.constants, facts.notes
        mean, std = load_options.channel_constants(facts.blank.shape[1], own, notes)
        network = Encoder(network, nn.Identity(), mean, std)
        if (head := facts.weights.head) is not None:
            width = _width(network, facts.blank)
            first = next(m for m in head.modules() if isinstance(m, nn.Linear))
            fits = first.in_features == width
            network.head = head if fits else network.head
            unfit = Note("head-unfit", {"length": width})
            facts.notes.append(Note("head-of-file") if fits else unfit)
    if isinstance(network, Encoder):
        network.requires_grad_(True)  # attacks train copies; whoever made it may have frozen it
        network = LoadedEncoderMethod(network, _width(network, facts.blank), load_options.seed)
    method = network.to(load_options.device)

    def permuted(least: int) -> SSLMethod:
        control: SSLMethod = copy.deepcopy(method)
        parts = control.shared_modules().items()
        state = {prefix + n: t for prefix, part in parts for n, t in part.state_dict().items()}
        untrained.permute_tensors(state, facts, least)
        return control

    return load_with_control(facts, access, method, permuted)


@torch.no_grad()
def _width(encoder: Encoder, blank: Tensor) -> int:
    """Length of the encoder's output vectors."""
    return int(encoder.eval()(blank).shape[1])


def load_with_control(
    facts: EncoderFacts,
    access: str,
    method: SSLMethod,
    permuted: Callable[[int], SSLMethod],
) -> LoadedEncoder:
    """A released encoder whose control is its own with weights permuted.

    Args:
        facts: of the loading, in which blank pixels were tried.
        access: `white_box` or `black_box`.
        method: of the encoder.
        permuted: makes its control, weight tensors of fewer dimensions than its argument left
            alone.

    Returns:
        The encoder.
    """
    shape, fixed = facts.blank.shape[1:], facts.fixed_size
    return LoadedEncoder(
        name=facts.where,
        method=method,
        augment=MoCoV2().augment,
        untrained=lambda: untrained.build_control(permuted, method.encoder, facts, shape),
        untrained_how=untrained.HOW,
        access=access,
        channels=shape[0],
        size=shape[1] if fixed or facts.load_options.size else facts.size,
        fixed_size=fixed,
        notes=facts.notes,
        weights=facts.weights,
    )


def load_weights(facts: EncoderFacts, module: nn.Module) -> None:
    """The checkpoint's weights into an architecture of a library, or a note that there are none.

    Args:
        facts: of the loading: which checkpoint, and where the note goes.
        module: the architecture, with random weights; it is changed in place.

    Raises:
        InputError: the checkpoint cannot be read, or does not fit.
    """
    if facts.load_options.checkpoint is None:
        facts.notes.append(Note("random-weights", {"encoder": facts.where}))
        facts.weights = Weights("random weights")
    else:
        facts.weights = checkpoint.load_checkpoint(facts, module, adapt=True)
