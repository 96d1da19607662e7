"""What more clients cost where the images stay the same: seconds by part, and peak memory.

Each run is a process of its own, from its start to its report, on the same images dealt to more and
more clients. What grows is what clients cost beside training: messages, their models and their
states, and the report's rows. Seconds of the process's own time (`cpu_s`) count for less what else
runs on the machine.

    python benchmarks/many_clients.py [--clients 10,100,1000] [--members 4000] [--rounds 3]
        [--backend inline] [--out benchmarks/results/many_clients.json]

Writes the JSON and, beside it, a plot of the same name.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _process import measure_process  # beside this script

from fedmia.report.figures import canvas
from fedmia.runtime.environment import describe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results" / "many_clients.json"
NONMEMBERS, TEST = 1000, 200
SMALL = (
    "--model.width 4 --data.pixels 8 --train.local_epochs 1 --partition iid --device cpu "
    "--attacks similarity,dataset-inference --attack.similarity.views 4 "
    "--attack.dataset-inference.views 4 --federation.snapshots 1 --quiet "
    f"--split.nonmembers {NONMEMBERS} --split.test {TEST}"
)
PARTS = ("import", "data", "train", "attacks", "probes", "report", "overhead_s")


def measure(clients: int, members: int, rounds: int, backend: str) -> dict[str, Any]:
    """One run: seconds by part, seconds of the whole process, and its peak memory in MiB.

    Raises:
        RuntimeError: the run failed; holds what it printed.
    """
    images = members + NONMEMBERS + TEST
    sizes = f"--clients {clients} --split.members {members} --rounds {rounds} --backend {backend}"
    flags = f"{SMALL} {sizes} --dataset synthetic --data.images {images}".split()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "RUN"
        measurement = measure_process(
            [sys.executable, "-m", "fedmia.simulate", *flags, "--out", str(out)]
        )
        timing = json.loads((out / "report.json").read_text(encoding="utf-8"))["timing"]
        size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    return {
        "clients": clients,
        **measurement,
        "ms_a_client_and_round": 1000 * measurement["wall_s"] / clients / rounds,
        "folder_mb": size / 1e6,
        "parts": {part: timing[part] for part in PARTS},
    }


@canvas.drawn
def plot(rows: Sequence[dict[str, Any]]) -> Figure:
    """Seconds by part, stacked, and peak memory, by number of clients."""
    figure = canvas.new_figure(8.0, 3.6)
    time_axes, right = figure.subplots(1, 2)
    names, bottom = [f"{row['clients']:,}" for row in rows], [0.0] * len(rows)
    for part, colour in zip(PARTS, canvas.COLOURS, strict=True):
        heights = [row["parts"][part] for row in rows]
        time_axes.bar(names, heights, 0.6, bottom, color=colour, label=part.removesuffix("_s"))
        bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
    right.bar(names, [row["peak_mib"] for row in rows], 0.6, color=canvas.GREY)
    for axes, title in ((time_axes, "seconds of a run, by part"), (right, "peak memory, MiB")):
        axes.set_title(title)
        axes.set_xlabel("clients")
    canvas.legend(time_axes, columns=4)
    return figure


def line(row: dict[str, Any], first: dict[str, Any]) -> str:
    """One run, for the eye."""
    parts = ", ".join(f"{part.removesuffix('_s')} {row['parts'][part]:.1f}" for part in PARTS)
    return (
        f"{row['clients']:6,} clients: {row['wall_s']:.1f} s ({row['cpu_s']:.1f} of its own), "
        f"{row['ms_a_client_and_round']:.1f} ms a client and round, {row['peak_mib']:,.0f} MiB "
        f"({row['peak_mib'] / first['peak_mib']:.2f} of the first); {parts}\n"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", default="10,100,1000", help="numbers of clients")
    parser.add_argument("--members", type=int, default=4000, help="images that they share")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", default="inline")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for clients in map(int, args.clients.split(",")):
        rows.append(measure(clients, args.members, args.rounds, args.backend))
        sys.stdout.write(line(rows[-1], rows[0]))
        sys.stdout.flush()
    setting = {"members": args.members, "rounds": args.rounds, "backend": args.backend}
    results = {"setting": setting | {"flags": SMALL}, "runs": rows, **describe()}
    args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    figure = plot(rows)
    assert figure is not None
    args.out.with_suffix(".png").write_bytes(figure)


if __name__ == "__main__":
    main()
