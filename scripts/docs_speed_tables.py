"""Tables of seconds and memory in the pages of docs/, from the result files."""

from __future__ import annotations

from typing import Any

from docs_rows import DASH, load, short, table

# Runs whose time is in their report: what ran, its command, the report.
TIMED = (
    ("digits, ten clients, an active attacker", "fedmia simulate --attacker active", "default"),
    ("digits, an overfitted encoder", "fedmia simulate --config overfit", "overfit"),
    ("CIFAR-10, ten clients, the paper in small",
     "fedmia simulate --config papers/federated-contrastive-cifar10-small", "paper-cifar10-small"),
    ("audit of a small encoder, all attacks, four shadows", "fedmia audit --shadows 4",
     "attack-suite"),
    ("audit of a ResNet-18 with eight attacks", "fedmia audit", "resnet18-overfit"),
)  # fmt: skip


def hardware() -> str:
    """Seconds of whole commands, and the machine of each."""

    def row(what: str, command: str, folder: str) -> list[str]:
        report = load(f"{folder}/report.json")
        seconds, machine = report["timing"], report["hardware"]
        minutes = [f"{seconds[k] / 60:.1f}" for k in ("train", "attacks", "total_s")]
        cpu = machine["cpu"].replace("(R)", "")
        return [what, f"`{command} ..`", *minutes, f"{cpu}, {machine['cores']} cores, no GPU"]

    head = ["what", "command", "training, min", "attacks, min", "in total, min", "machine"]
    return table(head, [row(*timed) for timed in TIMED])


def whole_run() -> str:
    """Processor seconds of a small run by term."""
    terms = load("whole_run.json")["terms_cpu_s"]
    total = sum(terms.values())
    rows = [[name, f"{s:.1f}", f"{100 * s / total:.0f} %"] for name, s in terms.items()]
    return table(["where", "processor, s", "share"], rows)


GROWS = {
    "clients": "clients of two images, 20 a round", "images": "members that are scored",
    "weights": "weights", "rounds": "rounds", "attacks": "attacks",
    "updates": "rounds whose updates are kept",
}  # fmt: skip


PAIRED = {
    "cross-device": "100,000 clients, 100 a round | 100 clients, the same images",
    "small-clients": "1,000 clients of 4 images | 10 of 400",
}


def growth() -> str:
    """Peak memory and processor seconds along each axis, exponents, and room."""

    def row(axis: str, one: Any) -> list[str]:
        def cost(kind: str, key: str) -> list[str]:
            fitted = one[kind]
            room = DASH if fitted["room"] is None else f"{fitted['room']:,.0f}"
            values = ", ".join(f"{run[key]:,.0f}" for run in one["runs"])
            return [values, short(fitted["exponent"], 1), room]

        sizes = ", ".join(f"{size:,.0f}" for size in one["sizes"])
        return [GROWS[axis], sizes, *cost("memory", "peak_mib"), *cost("time", "cpu_s")]

    head = ["what grows", "sizes", "memory, MiB", "exponent", "room, times",
            "processor, s", "exponent", "room, times"]  # fmt: skip
    return table(head, [row(*one) for one in load("growth.json")["axes"].items()])


def growth_pairs() -> str:
    """Two federations of the same images, with many clients and with few."""

    def row(name: str, pair: Any) -> list[str]:
        many, few = PAIRED[name.split(" on ")[0]].split(" | ")

        def cost(key: str, decimals: int) -> list[str]:
            least = [min(run[key] for run in pair[side]) for side in ("many", "few")]
            return [", ".join(f"{n:,.{decimals}f}" for n in least), short(pair["ratio"][key])]

        start = min(run["start_s"] for run in pair["many"])
        return [
            f"{many} against {few}", pair["backend"], *cost("peak_mib", 0), *cost("wall_s", 0),
            *cost("cpu_s", 0), f"{pair['ms_a_client_and_round']['wall_s']:.1f}", f"{start:.1f}",
        ]  # fmt: skip

    head = ["federations", "backend", "memory, MiB", "times", "seconds", "times", "processor, s",
            "times", "ms a client and round", "start, s"]  # fmt: skip
    return table(head, [row(*one) for one in load("growth.json")["pairs"].items()])
