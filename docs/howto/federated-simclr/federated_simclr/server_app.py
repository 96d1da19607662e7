"""FedAvg, recorded and watched."""

from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.neighbors import KNeighborsClassifier

import fedmia.flower
from federated_simclr.task import MEMBERS, DigitNet, read_digits
from fedmia.ssl.augment import Augment

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, out = context.run_config, Path(context.run_config["out"])
    images, labels = read_digits()
    members, others = slice(MEMBERS), slice(MEMBERS, 5 * MEMBERS)
    labelled, rest = slice(-100, None), slice(MEMBERS, -100)
    torch.manual_seed(0)
    net = DigitNet()

    @torch.no_grad()
    def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord:
        net.load_state_dict(arrays.to_torch_state_dict())
        vectors = net.eval().encoder(torch.from_numpy(images) / 255).numpy()
        knn = KNeighborsClassifier().fit(vectors[labelled], labels[labelled])
        return MetricRecord({"knn": knn.score(vectors[rest], labels[rest])})

    watch = fedmia.flower.Watch(
        DigitNet, images[members], images[others], every=2, stop_above=config["stop-above"] or None,
        mean=[0], std=[1], augment=Augment(crop_min=0.5, flip=0, jitter_p=1),
    )  # fmt: skip
    with fedmia.flower.record(grid, out / "recording", updates="all", watch=watch) as grid:
        result = FedAvg(fraction_evaluate=0.0).start(
            grid, ArrayRecord(net.state_dict()), config["num-server-rounds"], evaluate_fn=evaluate
        )
        grid.final(result.arrays)
    for name, side in (("members", members), ("others", others)):
        np.savez(out / f"{name}.npz", x=images[side], y=labels[side])
