"""One untrained network in three forms, audited by every attack that trains no shadow.

A torchvision network with random weights is audited by name, as a .pt2 and as an .onnx export, on
synthetic images that it never saw. Nothing was trained, so nothing leaks: every simultaneous
interval must hold 0.5. The exit code is 1 where one does not, or where an attack breaks.

    python benchmarks/audit_exports.py [--model resnet50] [--size 224] [--images 64] [--threads 2]
        [--forms torchvision,pt2,onnx] [--attacks NAME,..] [--flags TEXT] [--work FOLDER]
        [--out FILE.json]

With --work the finished attacks are kept, and the same command goes on where it was cut short.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shlex
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torchvision import models

from fedmia.audit import main as audit
from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
from fedmia.runtime.cores import count_cores
from fedmia.runtime.environment import describe, version
from fedmia.settings import registry
from fedmia.settings.commands.audit_attacks import outside_reason
from fedmia.storage.runfolder import RunFolder

RESULTS = Path(__file__).parent / "results" / "audit_exports.json"
HEADS = ("fc", "classifier")
FORMS = ("torchvision", "pt2", "onnx")
KEPT = ("name", "auc", "low", "high", "n_members", "n_nonmembers", "queries")


def attacks() -> list[str]:
    """Attacks of an outsider that need no shadow encoder."""
    names = [n for n in registry.names("attack") if outside_reason(n) is None]
    return [n for n in names if not registry.load("attack", n).uses_shadows]


def write_images(folder: Path, size: int, images: int) -> str:
    """Two archives of `images` synthetic images each, and the flags that name them."""
    source = Synthetic(classes=4, images=2 * images, pixels=size)
    images_set = source.load(Request(None, None, None, 0))
    flags = ""
    for side, cut in (("members", slice(images)), ("nonmembers", slice(images, None))):
        path = folder / f"{side}.npz"
        np.savez(path, x=images_set.images[cut].transpose(0, 2, 3, 1), y=images_set.labels[cut])
        flags += f"--{side} npz:{path} "
    return flags


def write_network(name: str, size: int, folder: Path) -> dict[str, str]:
    """One network with random weights in every form; the flags that bring each."""
    files = {form: folder / f"{name}.{form}" for form in ("pth", "pt2", "onnx")}
    if not all(file.exists() for file in files.values()):
        export(name, size, files)
    return {
        "torchvision": f"--encoder torchvision:{name} --checkpoint {files['pth']} ",
        "pt2": f"--encoder {files['pt2']} ",
        "onnx": f"--encoder {files['onnx']} ",
    }


def export(name: str, size: int, files: dict[str, Path]) -> None:
    """Write the network as a file of weights, a .pt2 and an .onnx."""
    torch.manual_seed(0)
    network = models.get_model(name, weights=None)
    for head in HEADS:
        if hasattr(network, head):
            setattr(network, head, nn.Identity())
    # Its running statistics fit what it sees, as those of a trained network do.
    network.train()
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = None
    with torch.no_grad():
        network(torch.randn(8, 3, size, size))
    network.eval()
    torch.save(network.state_dict(), files["pth"])
    example, shapes = (torch.zeros(2, 3, size, size),), ({0: torch.export.Dim("batch")},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(network, example, dynamic_shapes=shapes)
        torch.export.save(program, files["pt2"])
        torch.onnx.export(
            network, example, str(files["onnx"]), dynamic_shapes=shapes, dynamo=True, verbose=False
        )


def run_audit(flags: str, out: Path) -> dict[str, Any]:
    """What an audit found, and how long it took."""
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        code = audit([*shlex.split(flags), "--out", str(out)])
    if code not in (0, 1):
        raise SystemExit(f"the audit {out.name} ended with exit code {code}")
    report = RunFolder(out).report()
    rows = {"attacks": report.attacks} | {
        f"{name} control": rows for name, rows in report.controls.items()
    }
    results = {
        label: [{k: getattr(row, k) for k in KEPT} for row in listed]
        for label, listed in rows.items()
    }
    for row in results["attacks"]:
        row["seconds"] = report.timing["by_attack"][row["name"]]
    low = [
        f"{row['name']} ({label})"
        for label, listed in results.items()
        for row in listed
        if not row["low"] <= 0.5 <= row["high"]
    ]
    return {
        "exit_code": code,
        "access": report.split["access"],
        "holds_half": not low,
        "excludes_half": low,
        "intervals": report.family.intervals,
        "verdict_code": report.verdict_code,
        "seconds": round(time.perf_counter() - started, 2),
        "not_run": dict(report.not_run),
    } | results


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="resnet50", help="of torchvision")
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
    parser.add_argument("--images", type=int, default=64, help="members, and as many non-members")
    parser.add_argument("--attacks", help="names (default: all that train no shadow)")
    parser.add_argument("--flags", default="", help="more flags of the audit, as one text")
    parser.add_argument("--forms", default=",".join(FORMS), help="which of them")
    parser.add_argument("--threads", type=int, default=count_cores())
    parser.add_argument("--work", type=Path, help="folder of the networks and audits (default: "
                        "one that is removed)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    selected_forms = [form for form in FORMS if form in arguments.forms.split(",")]
    chosen = arguments.attacks or ",".join(attacks())
    with contextlib.ExitStack() as stack:
        work = arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.mkdir(parents=True, exist_ok=True)
        common = write_images(work, arguments.size, arguments.images) + (
            f"--attacks {chosen} --size {arguments.size} --threads {arguments.threads} "
            f"--device cpu {arguments.flags}"
        )
        network = write_network(arguments.model, arguments.size, work)
        forms = {f: run_audit(network[f] + common, work / f"audit-{f}") for f in selected_forms}
        sizes = {
            form: sum(file.stat().st_size for file in work.glob(f"{arguments.model}.{form}*"))
            for form in ("pt2", "onnx")
        }
    where = describe()
    where["versions"] |= {name: version(name) for name in ("onnx", "onnxruntime", "onnxscript")}
    report = {
        "model": arguments.model, "pixels": arguments.size, "images_a_side": arguments.images,
        "threads": arguments.threads, "flags": arguments.flags,
        "holds_half": all(f["holds_half"] for f in forms.values()),
        "bytes": sizes, "forms": forms,
    } | where  # fmt: skip
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    for name, form in forms.items():
        verdict = "all hold 0.5" if form["holds_half"] else ", ".join(form["excludes_half"])
        print(f"{name}: {len(form['attacks'])} attacks, {form['seconds']:.0f} s: {verdict}")
        for row in form["attacks"]:
            low, high = row["low"], row["high"]
            print(f"  {row['name']:15} {row['auc']:.3f} [{low:.3f}, {high:.3f}] "
                  f"{row['queries']:7,} queries {row['seconds']:7.1f} s")  # fmt: skip
    broken = any(f["exit_code"] for f in forms.values())
    return int(broken or not report["holds_half"])


if __name__ == "__main__":
    sys.exit(main())
