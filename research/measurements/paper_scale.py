"""What leaks from one encoder of a paper's size, by the epochs that it was trained.

MoCo v1 with a ResNet-18 on 10,000 images of CIFAR-10, by the settings of EncoderMI's paper
(`configs/papers/encodermi.yaml`) for fewer epochs in larger batches; as many other images of the
same file are never seen. Models of growing epochs are audited by `similarity`, and by PartCrop and
EncoderMI-V that are fitted on known images (`configs/papers/audits/partcrop.yaml`), beside an
untrained encoder. It is one encoder of one seed: exploratory. Training and audits run beside each
other, so no seconds are told.

    PYTHONPATH=. python research/measurements/paper_scale.py CIFAR10.parquet FOLDER
        [--epochs 500] [--minutes 10] [--out research/results/paper_scale.json]

Repeated with the same FOLDER it goes on where `--minutes` ended it.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmia.runtime.environment import describe
from fedmia.settings.yamlfile import dump
from fedmia.storage.runfolder import RunFolder
from research.papers.central import LOSSES, PROGRESS
from research.papers.jobs import AUDIT, ENCODER
from research.papers.layers import lay

RESULTS = Path(__file__).parents[1] / "results" / "paper_scale.json"
KEEP = (25, 50, 100, 200, 300, 400, 600, 800, 1000, 1200, 1400)
RATE = 0.03  # of a batch of 256, as in the paper's settings
ATTACKS = "similarity,encodermi-v,partcrop"


def start(module: str, log: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """A process of a module, which writes what it says into a file."""
    with log.open("ab") as file:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)


def write_settings(args: argparse.Namespace) -> Path:
    """The settings of the training."""
    own = {
        "data": {"name": f"parquet:{args.images.resolve()}"}, "seed": args.seed,
        "members": args.members, "nonmembers": args.members, "epochs": args.epochs,
        "keep": [epoch for epoch in KEEP if epoch < args.epochs],
    }  # fmt: skip
    own["train"] = {"batch_size": args.batch, "lr": RATE * args.batch / 256}
    tree, _ = lay(ENCODER, [{"preset": "papers/encodermi"}, own])
    file: Path = args.folder / "encoder.yaml"
    file.write_text(dump({**tree, "device": args.device}))
    return file


def start_audit(args: argparse.Namespace, epoch: int, out: Path) -> subprocess.Popen[bytes]:
    """The audit of the encoder as it was after an epoch."""
    own = {
        "known": args.known,
        "limit": args.limit,
        "attacks": args.attacks.split(","),
        "seed": args.seed,
    }
    tree, _ = lay(AUDIT, [{"preset": "papers/audits/partcrop"}, own])
    run = args.folder / "encoder"
    sides = {side: f"npz:{run / side}.npz" for side in ("members", "nonmembers")}
    file = args.folder / f"audit-{epoch}.yaml"
    file.write_text(dump({**tree, **sides, "encoder": f"{run}@{epoch}", "device": args.device}))
    log = args.folder / f"audit-{epoch}.log"
    return start("fedmia.audit", log, "--config", file, "--out", out, "--quiet")


def row_of(epoch: int, report: dict[str, Any]) -> dict[str, Any]:
    """What an audit found."""
    untrained = {one["name"]: one for one in report["controls"]["untrained"]}
    keys = ("auc", "low", "high", "n_members", "n_nonmembers")
    attacks = {
        one["name"]: {k: one[k] for k in keys} | {"untrained": untrained[one["name"]]["auc"]}
        for one in report["attacks"]
    }
    utility = report["utility"]
    knn = {"knn": utility["knn"], "knn_ci": utility["knn_ci"], "knn_images": utility["n"]}
    return {"epoch": epoch, "attacks": attacks, **knn, "knn_untrained": utility["untrained"]["knn"]}


def is_whole(report: dict[str, Any], attacks: str) -> bool:
    """Whether an audit and its control were not interrupted."""
    return {one["name"] for one in report["controls"]["untrained"]} == set(attacks.split(","))


def saved_epochs(args: argparse.Namespace) -> list[int]:
    """Epochs whose model is there to be audited."""
    models = (args.folder / "encoder" / "recording" / "models" / "main").glob("*.safetensors")
    whole = (args.folder / "encoder" / LOSSES).exists()
    safe = whole or (args.folder / "encoder" / PROGRESS).exists()
    epochs = sorted(int(model.stem) for model in models) if safe else []
    return [epoch for epoch in epochs if epoch in KEEP or epoch == args.epochs]


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and audit; 0 when all is done, 1 where the time was over before."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("images", type=Path, help="CIFAR-10 as parquet")
    parser.add_argument("folder", type=Path, help="of encoder and audits")
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--members", type=int, default=10_000, help="and as many others")
    parser.add_argument("--known", type=int, default=2000, help="images a side to fit on")
    parser.add_argument("--limit", type=int, default=2000, help="images a side that are scored")
    parser.add_argument("--attacks", default=ATTACKS, help="PartCrop takes by far the longest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=512, help="images a step, the rate with it")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--train-only", action="store_true", help="audit nothing yet")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--commit", help="of a source that is no checkout")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    end = time.monotonic() + 60 * args.minutes
    args.folder.mkdir(parents=True, exist_ok=True)
    encoder, settings = args.folder / "encoder", write_settings(args)
    log, audits = args.folder / "encoder.log", args.folder / "audits"
    audits.mkdir(exist_ok=True)
    for tried in audits.glob("*.tried"):  # what was interrupted is gone on with
        tried.unlink()
    training = (
        None
        if (encoder / LOSSES).exists()
        else start("research.papers.central", log, settings, encoder)
    )
    auditing: subprocess.Popen[bytes] | None = None
    rows: dict[int, dict[str, Any]] = {}
    try:
        while time.monotonic() < end:
            time.sleep(0.5)
            if auditing is not None and auditing.poll() is None:
                continue
            auditing, waiting = None, [] if args.train_only else saved_epochs(args)
            for epoch in reversed(waiting):  # the last says most
                report = RunFolder(audits / str(epoch)).read_report_or_none()
                if report is not None and is_whole(report, args.attacks):
                    rows[epoch] = row_of(epoch, report)
                elif not (tried := audits / f"{epoch}.tried").exists():  # else its log says why
                    tried.touch()
                    auditing = start_audit(args, epoch, audits / str(epoch))
                    break
            write_rows(args, rows)
            if auditing is None and (training is None or training.poll() is not None):
                return 0 if training is None else training.returncode
    finally:
        for process in (training, auditing):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait()
    return 1


def write_rows(args: argparse.Namespace, rows: dict[int, dict[str, Any]]) -> None:
    """Write what is known so far."""
    about = describe()
    about["commit"] = args.commit or about["commit"]
    names = ("members", "known", "limit", "seed", "epochs", "batch")
    result = {
        **{name: getattr(args, name) for name in names}, "exploratory": True,
        "settings": (args.folder / "encoder.yaml").read_text(),
        "audits": [rows[epoch] for epoch in sorted(rows)], **about,
    }  # fmt: skip
    args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
