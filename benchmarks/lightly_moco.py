"""An encoder trained by lightly's MoCo loop, audited from its checkpoint, beside our own MoCo's.

Both loops get the same CIFAR-10 images, network, first weights, views, queue, momentum,
temperature, batches, learning rates and epochs. Both write a checkpoint in lightly's key names, and
`python -m fedmia.audit` reads all of them: members are the images of the training, non-members
others of the same file. Needs lightly, which nothing else here does: pip install lightly

    python benchmarks/lightly_moco.py --cifar cifar10-train.parquet [--seeds 3] [--epochs 150]
        [--members 256] [--jobs 2] [--work FOLDER] [--out FOLDER]

With --work what is trained and audited is kept, and the same command goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightly.loss import NTXentLoss
from lightly.models.modules import MoCoProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
from lightly.transforms import MoCoV2Transform
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from fedmia.data.base import Request
from fedmia.data.images import ByteArray
from fedmia.data.parquet import Parquet
from fedmia.encoders.base import IMAGENET
from fedmia.nets.resnet import BasicBlock, ResNet
from fedmia.options.seeding import rng, torch_rng
from fedmia.records.attack_rows import Interval
from fedmia.runtime.environment import describe, version
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Recipe, SSLMethod
from fedmia.ssl.moco import MoCoV2
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.statistics.spread import spread
from fedmia.study.scores import difference, read

RESULTS = Path(__file__).parent / "results" / "lightly"
CODES = ("lightly", "ours")
ATTACKS = "similarity,lpla,partcrop,internal"
WIDTH, PIXELS = 16, 32


@dataclass(frozen=True)
class Settings:
    """What both loops are given; a mild recipe overfits within minutes on a CPU."""

    epochs: int
    members: int
    batch: int = 32
    lr: float = 0.06
    momentum: float = 0.9
    weight_decay: float = 5e-4
    dim: int = 128
    queue: int = 128
    average: float = 0.99
    temperature: float = 0.2
    crop_min: float = 0.8
    flip: float = 0.0
    jitter: float = 0.5
    blur: float = 0.0

    @property
    def views(self) -> Augment:
        """MoCo v2's with these crops, flips, jitters and blurs."""
        s = 0.4 * self.jitter
        return Augment(
            crop_min=self.crop_min, flip=self.flip, brightness=s, contrast=s, saturation=s,
            hue=0.1 * self.jitter, jitter_p=0.8, gray_p=0.2, blur_p=self.blur,
        )  # fmt: skip

    def method(self, seed: int) -> SSLMethod:
        """Our MoCo v2 with its first weights; lightly's loop begins at the same."""
        spec = MoCoV2(
            dim=self.dim, queue=self.queue, momentum=self.average, temperature=self.temperature
        )
        net = ResNet(BasicBlock, (1, 1, 1, 1), 3, WIDTH, "batch", "cifar")
        recipe = Recipe(*IMAGENET, images=self.members)
        return spec.build(net, recipe, torch_rng(seed, "lightly benchmark"))


class LightlyMoCo(nn.Module):
    """The module of lightly's MoCo example, around a ResNet's children in an nn.Sequential."""

    def __init__(self, net: ResNet, head: nn.Module, dim: int) -> None:
        super().__init__()
        stages = (net.layer1, net.layer2, net.layer3, net.layer4)
        parts = (net.conv1, net.bn1, nn.ReLU(), net.maxpool, *stages, nn.AdaptiveAvgPool2d(1))
        self.backbone = nn.Sequential(*copy.deepcopy(parts))
        self.projection_head = MoCoProjectionHead(net.width, net.width, dim)
        self.projection_head.layers.load_state_dict(head.state_dict())
        self.backbone_momentum = copy.deepcopy(self.backbone)
        self.projection_head_momentum = copy.deepcopy(self.projection_head)
        deactivate_requires_grad(self.backbone_momentum)
        deactivate_requires_grad(self.projection_head_momentum)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.projection_head(self.backbone(x).flatten(start_dim=1))
        return projected

    def forward_momentum(self, x: Tensor) -> Tensor:
        key = self.backbone_momentum(x).flatten(start_dim=1)
        projected: Tensor = self.projection_head_momentum(key).detach()
        return projected


class Viewed(Dataset[list[Tensor]]):
    """Images under lightly's transform."""

    def __init__(self, images: ByteArray, settings: Settings) -> None:
        self.images = [Image.fromarray(image.transpose(1, 2, 0)) for image in images]
        self.transform = MoCoV2Transform(
            input_size=PIXELS, min_scale=settings.crop_min, hf_prob=settings.flip,
            cj_strength=settings.jitter, gaussian_blur=settings.blur,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> list[Tensor]:
        views: list[Tensor] = self.transform(self.images[i])
        return views


def train_by_lightly(images: ByteArray, settings: Settings, seed: int) -> tuple[LightlyMoCo, float]:
    """The loop of lightly's example: the module, and the mean loss of its last epoch."""
    torch.manual_seed(seed)
    random.seed(seed)
    first = settings.method(seed).encoder
    assert isinstance(first.backbone, ResNet)
    model = LightlyMoCo(first.backbone, first.head, settings.dim)
    batches = DataLoader(
        Viewed(images, settings), batch_size=settings.batch, shuffle=True, drop_last=True
    )
    criterion = NTXentLoss(settings.temperature, memory_bank_size=(settings.queue, settings.dim))
    optimizer = torch.optim.SGD(
        model.parameters(), settings.lr, settings.momentum, weight_decay=settings.weight_decay
    )
    total = settings.epochs * len(batches)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    losses: list[float] = []
    for _ in range(settings.epochs):
        losses = []
        for query_view, key_view in batches:
            update_momentum(model.backbone, model.backbone_momentum, m=settings.average)
            update_momentum(
                model.projection_head, model.projection_head_momentum, m=settings.average
            )
            loss = criterion(model(query_view), model.forward_momentum(key_view))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
    return model, float(np.mean(losses))


def train_by_ours(images: ByteArray, settings: Settings, seed: int) -> tuple[LightlyMoCo, float]:
    """Our loop, one epoch a job, as a holder trains; its weights in lightly's module."""
    method = settings.method(seed)
    train = Train(
        local_epochs=1, batch_size=settings.batch, lr=settings.lr, momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )  # fmt: skip
    total = settings.epochs * -(-len(images) // settings.batch)
    job = Job(
        method, make_optimizer(method, train), images, settings.views, train,
        rng(seed, "lightly benchmark"), 0, total, torch.device("cpu"),
    )  # fmt: skip
    metrics: dict[str, float] = {}
    for _ in range(settings.epochs):
        metrics = job.run()
    encoder = method.encoder
    assert isinstance(encoder.backbone, ResNet)
    return LightlyMoCo(encoder.backbone, encoder.head, settings.dim), metrics["loss"]


def train_once(code: str, seed: int, settings: Settings, work: Path) -> float:
    """The checkpoint of one loop and seed, trained unless it is there; its last loss."""
    torch.set_num_threads(1)
    file = work / f"{code}-{seed}.ckpt"
    metrics_file = file.with_suffix(".json")
    if not metrics_file.exists():
        with np.load(work / "members.npz") as archive:
            images = np.ascontiguousarray(archive["x"].transpose(0, 3, 1, 2))
        loop = {"lightly": train_by_lightly, "ours": train_by_ours}[code]
        model, loss = loop(images, settings, seed)
        torch.save({"epoch": settings.epochs, "state_dict": model.state_dict()}, file)
        metrics_file.write_text(json.dumps(loss))
    return float(json.loads(metrics_file.read_text()))


def write_images(cifar: Path, members: int, others: int, work: Path) -> None:
    """The first images of the file as two archives."""
    images = Parquet(limit=members + others).load(Request(str(cifar), None, None, 0))
    for side, cut in (("members", slice(members)), ("nonmembers", slice(members, None))):
        x, y = images.images[cut].transpose(0, 2, 3, 1), images.labels[cut]
        np.savez(work / f"{side}.npz", x=x, y=y)


def audit_checkpoints(
    files: Sequence[Path], settings: Settings, known: int, work: Path
) -> dict[str, Any]:
    """`series.json` of the audit of all checkpoints."""
    views = vars(settings.views)
    command = [
        sys.executable, "-m", "fedmia.audit", "--encoder", ",".join(map(str, files)),
        "--members", f"npz:{work / 'members.npz'}",
        "--nonmembers", f"npz:{work / 'nonmembers.npz'}",
        "--known", str(known), "--attacks", ATTACKS, "--device", "cpu", "--threads", "1",
        "--out", str(work / "audit"),
    ]  # fmt: skip
    for name in ("crop_min", "flip", "brightness", "contrast", "saturation", "hue", "blur_p"):
        command += [f"--augment.{name}", str(views[name])]
    code = subprocess.run(command, check=False).returncode
    if code:
        raise SystemExit(f"the audit ended with exit code {code}")
    series: dict[str, Any] = json.loads((work / "audit" / "series.json").read_text())
    return series


def compare_loops(series: Mapping[str, Any], seeds: int, work: Path) -> list[dict[str, Any]]:
    """Each attack's AUC, and kNN: over the trainings of each loop, and lightly's less ours: by seed
    on the same images, and over seeds."""
    paths = {Path(c["encoder"]).stem: work / "audit" / c["path"] for c in series["cells"]}
    points = {Path(p["encoder"]).stem: p for p in series["points"]}
    rows = []
    for i, name in enumerate(ATTACKS.split(",")):
        comparisons = []
        for seed in range(seeds):
            (same, a), (also, b) = (read(paths[f"{c}-{seed}"] / "scores.csv") for c in CODES)
            assert same == also
            value, ci, _ = difference(a[name], b[name], 1)
            comparisons.append({"seed": seed, "difference": value, "ci": ci})
        aucs = {c: [points[f"{c}-{s}"]["attacks"][i]["auc"] for s in range(seeds)] for c in CODES}
        rows.append(_row(f"AUC, {name}", aucs, comparisons))
    knn = {c: [points[f"{c}-{s}"]["knn"] for s in range(seeds)] for c in CODES}
    pairs = enumerate(zip(*knn.values(), strict=True))
    return [
        *rows,
        _row("weighted kNN", knn, [{"seed": s, "difference": a - b} for s, (a, b) in pairs]),
    ]


def _row(
    of: str, values: Mapping[str, Sequence[float]], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    over = spread([row["difference"] for row in rows], -1.0)
    by_code = {code: spread(aucs) for code, aucs in values.items()}
    return {"of": of, "by_code": by_code, "by_seed": rows, "over_seeds": over}


def table(report: Mapping[str, Any]) -> str:
    """The tables in Markdown."""
    points, attacks = report["series"]["points"], ATTACKS.split(",")
    ((members, others, probes),) = {
        (p["n_members"], p["n_nonmembers"], p["n_probe"]) for p in points
    }
    lines = [
        f"AUC on {members} scored members and {others} non-members, kNN on {probes} test images; "
        "in brackets 95 % intervals over images, each by itself; after the slash the untrained "
        "control.\n",
        f"| trained by | seed | last loss | {' | '.join(attacks)} | weighted kNN |",
        "|---" * (len(attacks) + 4) + "|",
    ]
    for point in points:
        code, _, seed = point["name"].removesuffix(".ckpt").partition("-")
        cells = [(row["auc"], row["auc_ci"], row["untrained"]) for row in point["attacks"]]
        cells.append((point["knn"], point["knn_ci"], point["knn_untrained"]))
        cells_text = " | ".join(
            f"{value:.3f} {_ends(ci)} / {bare:.3f}" for value, ci, bare in cells
        )
        lines.append(
            f"| {code} | {seed} | {report['losses'][f'{code}-{seed}']:.3f} | {cells_text} |"
        )
    lines += [
        f"\nlightly less ours, by seed on the same images, and over {len(points) // 2} seeds with "
        "Student's interval between models; beside it how much the trainings of one loop differ.\n",
        "| of | by seed | over seeds | deviation of lightly's | of ours |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for row in report["differences"]:
        each = "; ".join(f"{r['difference']:+.3f} {_ends(r.get('ci'))}" for r in row["by_seed"])
        over, sd = row["over_seeds"], (f"{row['by_code'][c]['sd']:.3f}" for c in CODES)
        mean = f"{over['mean']:+.3f} {_ends(over['ci'])}"
        lines.append(f"| {row['of']} | {each} | {mean} | {' | '.join(sd)} |")
    apart = [
        r["of"]
        for r in report["differences"]
        if (ci := r["over_seeds"]["ci"]) and ci[0] * ci[1] > 0
    ]
    lines.append(
        f"\nDifferences that the intervals over seeds establish: {', '.join(apart) or 'none'}."
    )
    return "\n".join(lines) + "\n"


def _ends(ci: Interval | None) -> str:
    return "" if ci is None else f"[{ci[0]:.3f}, {ci[1]:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cifar", type=Path, required=True, help="parquet file of CIFAR-10")
    parser.add_argument("--seeds", type=int, default=3, help="trainings by each loop")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--members", type=int, default=256, help="a multiple of the batch, 32")
    parser.add_argument("--others", type=int, default=656, help="non-members")
    parser.add_argument("--known", type=int, default=56, help="a side, to the attacker")
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side")
    parser.add_argument("--work", type=Path, help="folder of checkpoints and audits")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    settings = Settings(arguments.epochs, arguments.members)
    with contextlib.ExitStack() as stack:
        work = arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.mkdir(parents=True, exist_ok=True)
        if not (work / "nonmembers.npz").exists():
            write_images(arguments.cifar, arguments.members, arguments.others, work)
        runs = [(code, seed) for seed in range(arguments.seeds) for code in CODES]
        with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
            futures = [pool.submit(train_once, code, seed, settings, work) for code, seed in runs]
            losses = {f"{c}-{s}": one.result() for (c, s), one in zip(runs, futures, strict=True)}
        files = [work / f"{name}.ckpt" for name in losses]
        series = audit_checkpoints(files, settings, arguments.known, work)
        rows = compare_loops(series, arguments.seeds, work)
    where = describe()
    where["versions"] |= {"lightly": version("lightly")}
    points = [{**p, "encoder": p["name"], "run": p["name"]} for p in series["points"]]
    summary = {"sentence": series["sentence"], "points": points, "notes": series["notes"]}
    report = {
        "settings": asdict(settings), "losses": losses, "differences": rows, "series": summary,
    } | where  # fmt: skip
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "lightly.json").write_text(json.dumps(report, indent=2) + "\n")
    (arguments.out / "lightly.md").write_text(table(report))
    print(table(report))


if __name__ == "__main__":
    main()
