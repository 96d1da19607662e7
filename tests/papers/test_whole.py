"""What the five papers name and number stands in an entry, or in `left_out` with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from fedmia.shadows.plan import ShadowPlan
from papers.listing import read_files

# What the experiments of each paper name -> the name or the key in the settings of an entry; None:
# no command of the tables runs it, so `left_out` says why.
NAMED: dict[str, dict[str, str | None]] = {
    "federated": {
        "SVHN": "svhn", "CIFAR-10": "cifar10", "CIFAR-100": "cifar100",
        "MoCo": "moco", "cosine similarity": "similarity", "internal model": "internal",
        "feature combination": "combined", "SVM": "table_4/svm/accuracy",
        "logistic regression": "table_4/lr/accuracy", "LDA": "lda",
        "gradient ascent": "ascent-static", "Algorithm 1": "ascent-algorithm1",
    },
    "encodermi": {
        "CIFAR10": "cifar10", "STL10": "stl10", "Tiny-ImageNet": "tinyimagenet",
        "Google": None, "Flickr": None, "CLIP": None,
        "MoCo v1": "moco", "SimCLR": "simclr", "ResNet18": "resnet18", "VGG-11": "vgg11-bn",
        "EncoderMI-V": "encodermi-v", "EncoderMI-S": "encodermi-s", "EncoderMI-T": "encodermi-t",
        "Baseline-A": "baseline-a", "Baseline-B": "baseline-b", "Baseline-C": "baseline-c",
        "Baseline-D": "baseline-d", "Baseline-E": "baseline-e",
        "early stopping": "epoch", "Differential privacy": None, "Adversarial learning": None,
    },
    "lpla": {
        "CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "Tiny-ImageNet": "tinyimagenet",
        "ImageNet": None, "official ResNet-50": None,
        "MoCo-v1": "moco", "MoCo-v2": "mocov2", "MoCo-v3": "mocov3",
        "ResNet-18": "resnet18", "ResNet-50": "resnet50", "ViT-Small": "vit-small",
        "ViT-Base": "vit-base", "Encoder-MI": "encodermi-v", "SD-MI": "sd-mi", "Fe-MI": "fe-mi",
        "LpLA": "lpla", "threshold-based MI": "threshold",
        "Differential privacy": None, "adversarial regularization": None,
    },
    "partcrop": {
        "CIFAR100": "cifar100", "CIFAR10": "cifar10", "Tinyimagenet": "tinyimagenet",
        "COCO": None, "HAM10000": None, "ImageNet-1K": None, "ImageNet-22K": None,
        "MAE": "mae", "DINO": "dino", "MoCo": "moco", "CAE": "cae", "SwAV": "swav",
        "VICReg": "vicreg", "iBOT": "ibot", "SAIM": "saim", "long-sequence MAE": "mask_unit",
        "SupervisedMI": "supervised-mi", "Variance-onlyMI": "variance-only",
        "EncoderMI": "encodermi-v", "PartCrop": "partcrop", "Tanh": "tanh", "RMSNorm": "rms",
        "leaky ReLU": "leaky-relu", "SiLU": "silu", "L2": "l2", "LayerNorm": "layer",
        "narrow": "narrow", "wide": "wide", "shallow": "shallow", "deep": "deep",
        "random rotation": "rotation", "mix-up": "mixup", "adversarial": "adversarial",
        "early stop": "epoch", "differential privacy": "dpsgd", "SCSR": "crop_min",
        "complementarity": "with_similarity", "shadow setting": "shadow_data", "Runtime": None,
    },
    "logistic": {
        "Cifar 10": "cifar10", "Cifar 100": "cifar100", "STL 10": "stl10", "SimCLR": "simclr",
        "ALM": "logistic", "Laplace": "laplace", "Gaussian": "gaussian",
        "shadow model": "head", "Sensitivity Sampler": "samples",
    },
}  # fmt: skip
# Tables and figures of each paper; the federated one numbers tables in Roman.
NUMBERED = {
    "federated": (4, 13),
    "encodermi": (7, 5),
    "lpla": (5, 9),
    "partcrop": (13, 12),
    "logistic": (1, 2),
}
ROMAN = ("I", "II", "III", "IV")


def words(tree: Any) -> Iterator[str]:
    """Every key and every text of some settings."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield str(key)
            yield from words(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from words(value)
    else:
        yield str(tree)


def of_settings(file: dict[str, Any]) -> set[str]:
    """What the entries of a paper run, and the shadows where nothing is known of the target."""
    names = {w for key, tree in file.items() if key not in ("left_out", "open", "title")
             for w in words(tree)}  # fmt: skip
    return names | ({ShadowPlan().ssl, ShadowPlan().model} if "shadows" in names else set())


@pytest.mark.parametrize("paper", NAMED)
def test_what_a_paper_names__is_run_or_left_out_with_a_reason(paper: str) -> None:
    file = read_files()[paper]
    settings = of_settings(file)
    left = " ".join(f"{what}: {why}" for what, why in file["left_out"].items()).lower()
    missing = [
        name
        for name, setting in NAMED[paper].items()
        if not (setting in settings or (setting is None and name.lower() in left))
    ]
    assert not missing, f"neither in an entry nor in left_out of {paper}.yaml: {missing}"


def numbers(text: str, kind: str) -> set[int]:
    """The numbers of tables or figures that a place names: `Figs. 7, 8 and 9`, `Figs. 1 to 4`."""
    numbered: set[int] = set()
    for part in re.findall(rf"{kind}s?\.? ((?:[0-9IV]+[ab]?(?:, | and | to )?)+)", text):
        ends = [
            ROMAN.index(n) + 1 if n in ROMAN else int(n) for n in re.findall(r"\d+|[IV]+", part)
        ]
        numbered |= set(range(ends[0], ends[1] + 1)) if " to " in part else set(ends)
    return numbered


@pytest.mark.parametrize("kind, at", [("Table", 0), ("Fig", 1)])
@pytest.mark.parametrize("paper", NUMBERED)
def test_every_table_and_figure__is_an_entry_or_left_out(paper: str, kind: str, at: int) -> None:
    file = read_files()[paper]
    places = [entry["place"] for entry in file["entries"].values()]
    covered = set().union(*(numbers(text, kind) for text in [*places, *file["left_out"]]))
    assert covered == set(range(1, NUMBERED[paper][at] + 1))


def test_numbers__of_places() -> None:
    assert numbers("Table IV, Figs. 8 and 9", "Fig") == {8, 9}
    assert numbers("Table IV, Figs. 8 and 9", "Table") == {4}
    assert numbers("Figs. 7, 8 and 9", "Fig") == {7, 8, 9}
    assert numbers("Figs. 1 to 4", "Fig") == {1, 2, 3, 4}
    assert numbers("Figs. 5a and 5b", "Fig") == {5} and numbers("Fig. 2, bottom row", "Fig") == {2}
