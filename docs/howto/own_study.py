"""Own images, own network, own attack: two partitions, three seeds, compared with `similarity`."""

from dataclasses import dataclass

import numpy as np
from torch import nn

import fedmia
from fedmia.attacks import Attack
from fedmia.threat import Threat


@dataclass
class Norm(Attack):
    """Length of the embedding."""

    paper, needs = "none yet", Threat("black_box", "outsider")

    def score(self, view, images):
        return view.embed_plain(images).norm(dim=1).double().numpy()


def network():
    layers = [nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers)


if __name__ == "__main__":
    images = np.random.default_rng(0).integers(0, 256, (600, 3, 16, 16), dtype=np.uint8)
    study = fedmia.run_study("smoke", grid={"partition": ["iid", "quantity"]}, seeds=3,
                             dataset=images, model=network, attacks=["similarity", Norm()])
    comparison = study.compare("Norm", "similarity")
    print(comparison)
    comparison.plot.barh(x="point", y="difference").figure.savefig("comparison.png")
