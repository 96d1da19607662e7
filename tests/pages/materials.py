"""What the commands of the pages read: images, an encoder, runs, classes of the reader."""

from __future__ import annotations

import io
import json
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from PIL import Image
from torch import nn

from fedmia.flower import record, roster
from fedmia.testing.material import textures
from tests.bank import exclusive
from tests.pages.installed import Installed
from tests.pages.reading import ROOT, block
from tests.recording.apps.my_app import task
from tests.recording.plain import NODES, PlainGrid

# Module of a class that a page shows -> the page, and a text of the block.
CLASSES = {
    "norm_attack": ("README.md", "class Norm("),
    "drift_attack": ("docs/howto/write_an_attack.md", "class Drift("),
    "largest_changes": ("docs/howto/write_a_defence.md", "class LargestChanges("),
    "noisy_mean": ("docs/howto/write_a_strategy.md", "class NoisyMean("),
    "barlow_twins": ("docs/howto/write_an_ssl_method.md", "class BarlowTwins("),
    "geometric_median": ("docs/howto/write_a_strategy.md", "class GeometricMedian("),
    "simsiam": ("docs/howto/write_an_ssl_method.md", "class SimSiam("),
    "short_outputs": ("docs/howto/write_an_ssl_method.md", "class ShortOutputs("),
    "lightning_form": ("docs/howto/write_an_encoder_form.md", "class Lightning("),
    "worst_view": ("docs/howto/write_a_view.md", "class Worst("),
}  # fmt: skip
SMOKE = "fedmia simulate --config smoke --quiet"
QUICK = f"{SMOKE} --attacks similarity --federation.placebo false"


def pixels(count: int, seed: int, size: int = 16) -> np.ndarray:
    """Images (count, size, size, 3) that differ from one another and from those of other seeds."""
    small = textures(count, seed).permute(0, 2, 3, 1).numpy()
    noise = np.random.default_rng(seed).integers(0, 8, (count, size, size, 3), dtype=np.uint8)
    return small.repeat(size // 8, 1).repeat(size // 8, 2) // 2 + noise


def folder(
    path: Path, count: int, seed: int, gray: bool = False, classes: int = 0, bits: int = 8
) -> None:
    """A folder of PNG files, those of more than 8 bits with values in the low ones."""
    for nth, image in enumerate(pixels(count, seed)):
        place = path / str(nth % classes) if classes else path
        place.mkdir(parents=True, exist_ok=True)
        values = image[..., 0] if gray else image
        if bits > 8:
            values = values.astype(np.uint16) << bits - 8
        Image.fromarray(values).save(place / f"{nth}.png")


def listed(path: Path, count: int, patients: int, sites: int) -> None:
    """A list of images beside it, which names them by their whole paths: it is copied alone."""
    place = path.parent / "listed"
    folder(place, count, seed=7)
    lines = ["file;split;patient;hospital"]
    for nth in range(count):
        who = nth * patients // count
        side = "train" if who < patients // 2 else "test"
        lines.append(f"{place / str(nth)}.png;{side};p{who};h{who % sites}")
    path.write_text("\n".join(lines))


def parquet(path: Path, count: int, seed: int, owners: int = 0, column: str = "writer_id") -> None:
    """A parquet file as Hugging Face writes it."""
    files = []
    for image in pixels(count, seed):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        files.append({"bytes": file.getvalue(), "path": None})
    columns: dict[str, list] = {"img": files, "label": [n % 4 for n in range(count)]}
    if owners:
        columns[column] = [f"{path.stem}-{n % owners}" for n in range(count)]
    pq.write_table(pa.table(columns), path)


def both_parts(path: Path) -> None:
    """A folder of CIFAR-10's two files, with other images."""
    path.mkdir()
    parquet(path / "cifar10-train.parquet", 600, 7)
    parquet(path / "cifar10-test.parquet", 200, 8)


def arrays(path: Path, seed: int) -> None:
    """A NumPy archive of images and labels."""
    np.savez(path, x=pixels(400, seed, 8)[..., 0], y=np.arange(400) % 4)


def program(path: Path, channels: int = 3) -> None:
    """An exported encoder of images of 16 pixels."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(channels, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    )
    batch = {0: torch.export.Dim("batch", min=1)}
    exported = torch.export.export(
        net.eval(), (torch.zeros(2, channels, 16, 16),), dynamic_shapes=(batch,)
    )
    torch.export.save(exported, path)


def vectors(path: Path, seed: int) -> None:
    """An encoder's vectors of four views of 60 images."""
    np.save(path, np.random.default_rng(seed).normal(size=(60, 4, 16)))


def weights(path: Path) -> None:
    """Weights of a small network of timm."""
    import timm

    torch.save(timm.create_model("resnet10t").state_dict(), path)


def lightning(path: Path, width: int = 4) -> None:
    """A checkpoint of the network of write_an_encoder_form.md, as Lightning writes it."""
    first = nn.Conv2d(3, width, 3, 2)
    state = {f"encoder.0.{name}": tensor for name, tensor in first.state_dict().items()}
    torch.save({"hyper_parameters": {"width": width}, "state_dict": state}, path)


def recording(path: Path) -> None:
    """What plain clients trained on images of their own, in this process."""
    client, images = ClientApp(mods=[roster]), pixels(60, 1, 32)

    @client.train()
    def _(message: Message, context: Context) -> Message:
        net, received = task.Net(), message.content["arrays"]
        assert isinstance(received, ArrayRecord)
        net.load_state_dict(received.to_torch_state_dict())
        mine = torch.from_numpy(images[int(context.node_config["partition-id"]) :: len(NODES)])
        loss = task.train(net, mine.permute(0, 3, 1, 2) / 255, epochs=1)
        metrics = MetricRecord({"loss": loss, "num-examples": len(mine)})
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    with record(PlainGrid(client), path, updates="all") as grid:
        first = ArrayRecord(task.Net().state_dict())
        trained = FedAvg(fraction_evaluate=0.0).start(grid, initial_arrays=first, num_rounds=2)
        grid.final(trained.arrays)


def rounds(path: Path) -> None:
    """Models of three rounds, as a training script of the reader's keeps them."""
    path.mkdir()
    torch.manual_seed(0)
    for round in range(3):
        np.savez(path / f"{round}.npz", *(t.numpy() for t in task.Net().state_dict().values()))


def order(path: Path) -> None:
    """In which of two rounds each of 60 images was first trained on."""
    path.write_text("image,round\n" + "".join(f"{n},{1 + n % 2}\n" for n in range(60)))


def code(path: Path, page: str, containing: str) -> None:
    """A block of Python of a page, as a file."""
    path.write_text(block(page, containing))


class Materials:
    """Files and folders by the names that the pages give them, each made once.

    Args:
        installed: whose commands make runs.
        root: folder of all of them.
    """

    def __init__(self, installed: Installed, root: Path) -> None:
        self.installed = installed
        self.root = root
        run = self._run
        self.made: dict[str, Callable[[Path], None]] = {
            "RUN": partial(run, flags=f"{SMOKE} --attacker active"),
            "DIR": self._two_runs,
            "TRAINED": partial(folder, count=60, seed=1),
            "OTHERS": partial(folder, count=60, seed=2),
            "GRAY_TRAINED": partial(folder, count=60, seed=1, gray=True),
            "GRAY_OTHERS": partial(folder, count=60, seed=2, gray=True),
            "DEEP_TRAINED": partial(folder, count=60, seed=1, gray=True, bits=12),
            "DEEP_OTHERS": partial(folder, count=60, seed=2, gray=True, bits=12),
            "IMAGES": partial(folder, count=200, seed=3, classes=4),
            "DATA": both_parts,
            "PATH": both_parts,
            "patients.csv": partial(listed, count=300, patients=60, sites=3),
            "femnist.parquet": partial(parquet, count=300, seed=4, owners=4),
            "customer.parquet": partial(parquet, count=12, seed=1, owners=1, column="customer"),
            "trained.parquet": partial(parquet, count=60, seed=1, owners=12, column="customer"),
            "others.parquet": partial(parquet, count=66, seed=2, owners=22, column="customer"),
            "OWN.npz": partial(arrays, seed=5),
            "PUBLIC.npz": partial(arrays, seed=6),
            "parts.json": lambda path: (
                path.write_text(json.dumps([list(range(k, 400, 3)) for k in range(3)])) and None
            ),
            "model.pt2": program,
            "gray.pt2": partial(program, channels=1),
            "FILE.pth": weights,
            "RECORDING": recording,
            "ROUNDS": rounds,
            "order.csv": order,
            "my_app/task.py": lambda path: shutil.copy(task.__file__, path) and None,
            "research/papers": lambda path: (
                shutil.copytree(ROOT / "research/papers", path) and None
            ),  # of a clone
            **{
                f"{name}.py": partial(code, page=page, containing=text)
                for name, (page, text) in CLASSES.items()
            },
            "A.npy": partial(vectors, seed=0),
            "B.npy": partial(vectors, seed=1),
            "A-patients.npy": lambda path: np.save(path, np.repeat(np.arange(15), 4)),
            "B-patients.npy": lambda path: np.save(path, np.repeat(np.arange(15, 30), 4)),
            "FILE.ckpt": lightning,
        }

    def copy(self, name: str, into: Path) -> None:
        """Put one into a folder.

        Args:
            name: of the file or folder.
            into: where it shall lie.
        """
        source, target = self.make(name), into / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)

    def make(self, name: str) -> Path:
        """The path of one, made by the first worker that asks."""
        with exclusive(self.root.with_suffix(".lock")):
            return self._made(name)

    def _made(self, name: str) -> Path:
        """The path of one, made where it is missing."""
        path = self.root / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.made[name](path)
        return path

    def _run(self, path: Path, flags: str) -> None:
        """A run of few images."""
        for name in self.made:
            if name in flags:
                self._made(name)
        done = self.installed.run([*shlex.split(flags), "--out", str(path)], self.root)
        assert done.returncode == 0, done.stderr

    def _two_runs(self, path: Path) -> None:
        """What the attacker of which_defence.md makes: two federations of its own."""
        for name in ("knows", "naive"):
            self._run(path / name, f"{QUICK} --seed {1 + (name == 'naive')}")
