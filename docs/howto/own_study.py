"""Own images, network and attack: a study over two partitions and three seeds."""

from dataclasses import dataclass

import numpy as np
from torch import nn

import fedmia
from fedmia.attacks import Attack
from fedmia.threat import Threat


@dataclass
class Norm(Attack):
    paper, needs = "none yet", Threat("black_box", "outsider")

    def score(self, view, images):
        return view.embed_plain(images).norm(dim=1).double().numpy()


def network():
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


if __name__ == "__main__":
    images = np.random.default_rng(0).integers(0, 256, (600, 3, 16, 16), dtype=np.uint8)
    over, attacks = {"partition": ["iid", "quantity"]}, ["similarity", "lpla", Norm()]
    data = {"dataset": images, "model": network, "attacks": attacks}
    study = fedmia.run_study("smoke", over=over, seeds=3, out="STUDY", **data)
    print(study.compare(["Norm", "lpla"], "similarity"))
    study = study.rename({"similarity": "cosine similarity", "lpla": "LpLA"})
    study.figure("attacks").savefig("comparison.png")
    print(study.to_latex())
