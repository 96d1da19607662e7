"""Are images trained on later as good as non-members? What benchmarks/plans/later.yaml asks.

    python benchmarks/later.py run FOLDER [--seconds N] [--kinds KIND ..]
    python benchmarks/later.py answer [FOLDER] [--out FILE] [--short]

`run` makes the planned federations that FOLDER lacks, a file each, those of some kinds first if it
is told so, and begins no further one after N seconds. `answer` judges them; with fewer than planned
it needs `--short`, and the answer says so. Without FOLDER it judges the rows that FILE has.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

import fedmia
from fedmia.attacks.base import Known
from fedmia.data.base import Request
from fedmia.data.digits import Digits
from fedmia.data.images import ByteArray, IntArray
from fedmia.probes.pixels import pixel_scores
from fedmia.runtime.environment import describe
from fedmia.seeding import rng, torch_rng
from fedmia.settings import registry
from fedmia.ssl.base import SSLMethod, State, TrainingData
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.statistics.auc import auc, auc_estimate, auc_interval, difference_interval
from fedmia.statistics.intervals import ONE_SIDED, clopper_pearson
from fedmia.statistics.spread import t_interval

HERE = Path(__file__).parent
PLAN = HERE / "plans" / "later.yaml"
RESULTS = HERE / "results" / "later.json"
GROUPS = "early", "early_held", "late"  # early ones, others of the same clients, and later ones
RULES = "without", "difference", "absolute"
Scores = dict[str, np.ndarray]


def load_plan(path: Path = PLAN) -> dict[str, Any]:
    plan: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return plan


def cells(plan: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Kind and seed of each planned federation, seed by seed."""
    for seed in range(plan["seeds"]["first"], plan["seeds"]["first"] + plan["seeds"]["number"]):
        yield from ((kind, seed) for kind in plan["kinds"])


def deal_images(plan: Mapping[str, Any], kind: str, seed: int) -> list[tuple[ByteArray, ByteArray]]:
    """Images that each client trains on, and as many of its own that nobody trains on."""
    how, each = plan["kinds"][kind], 2 * plan["images_a_client"]
    digits, draw = Digits().load(Request(None, None, None, seed)), rng(seed, "later", kind)
    order = draw.permutation(len(digits))[: plan["clients"] * each]
    if alpha := how.get("alpha"):  # clients of equal size, each of its own mix of classes
        mixes = draw.dirichlet([alpha] * 10, plan["clients"])
        order = draw.permutation(len(digits))
        parts, left = list[IntArray](), [order[digits.labels[order] == c] for c in range(10)]
        for mix in mixes:
            own = list[int]()
            while len(own) < each:
                some = mix * np.array([len(one) > 0 for one in left]) + 1e-9
                some *= [len(one) > 0 for one in left]
                c = draw.choice(10, p=some / some.sum())
                own.append(int(left[c][0]))
                left[c] = left[c][1:]
            parts.append(draw.permutation(np.array(own)))
    else:
        parts = np.split(order, plan["clients"])
    dealt = []
    for client, part in enumerate(parts):
        images = digits.images[part]
        if client >= plan["clients"] // 2 and (darker := how.get("darker")):
            images = np.rint(images * darker).astype(np.uint8)
        dealt.append((images[: each // 2], images[each // 2 :]))
    return dealt


def train_rounds(
    plan: Mapping[str, Any], stream: bool, seed: int, parts: Sequence[ByteArray]
) -> dict[int, SSLMethod]:
    """FedAvg; the first half of the clients from the first round on, the others from the round
    after `join`, alone in a stream. Returns the model before, after `join`, and the last one."""
    train = Train(
        local_epochs=plan["epochs"], batch_size=plan["images_a_client"], schedule="constant"
    )
    spec, half = build_ssl(plan), len(parts) // 2
    train = train.fill_rate(spec.lr)

    def build(client: int) -> SSLMethod:
        net = registry.build("model", plan["model"], {}).build(1, 8)
        about = TrainingData(Digits.mean, Digits.std, len(parts[client]), batch=train.batch_size)
        method: SSLMethod = spec.build(net, about, torch_rng(seed, "later", "method"))
        return method

    methods = [build(client) for client in range(len(parts))]
    optimizers = [make_optimizer(method, train) for method in methods]
    shared, kept, begun = methods[0].shared_state(), {0: build(0)}, set[int]()
    for round in range(1, plan["rounds"] + 1):
        cohort = range(half) if round <= plan["join"] else range(half * stream, len(parts))
        sent = list[State]()
        for client in cohort:
            method = methods[client]
            method.load_shared(shared)
            method.begin_round() if client in begun else method.begin_first_round()
            begun.add(client)
            Job(
                method, optimizers[client], parts[client], spec.augment, train,
                rng(seed, "later", round, client), 0, 1, torch.device("cpu"),
            ).run()  # fmt: skip
            sent.append(method.shared_state())
        shared = {name: torch.stack([one[name] for one in sent]).mean(dim=0) for name in shared}
        if round in (plan["join"], plan["rounds"]):
            kept[round] = build(0)
            kept[round].load_shared(shared)
    return kept


def build_ssl(plan: Mapping[str, Any]) -> Any:
    """The method, with the views that a run of fedmia takes for digits."""
    return registry.build("ssl", plan["ssl"], vars(Digits.views))


def federation(plan: Mapping[str, Any], kind: str, seed: int) -> dict[str, Any]:
    """Train one federation, and compare what is scored on three models of it."""
    began, stream = time.process_time(), bool(plan["kinds"][kind].get("stream"))
    dealt, half = deal_images(plan, kind, seed), plan["clients"] // 2
    models = train_rounds(plan, stream, seed, [trained for trained, _ in dealt])
    images = {
        "early": np.concatenate([trained for trained, _ in dealt[:half]]),
        "early_held": np.concatenate([held for _, held in dealt[:half]]),
        "late": np.concatenate([trained for trained, _ in dealt[half:]]),
    }
    attack = registry.build("attack", "similarity", {"views": plan["views"]})
    scores, nobody = dict[int, Scores](), Known(*[torch.zeros((0, 1, 8, 8), dtype=torch.uint8)] * 2)
    for round, method in models.items():
        view = fedmia.view(
            method, size=8, channels=1, seed=seed,
            augment=build_ssl(plan).augment,
        )  # fmt: skip
        attack.fit(view, nobody, rng(seed, "later", "fit"))  # it learns from none
        every = attack.score(view, torch.from_numpy(np.concatenate([*images.values()])))
        ends = np.cumsum([0, *map(len, images.values())])
        scores[round] = {n: every[ends[i] : ends[i + 1]] for i, n in enumerate(GROUPS)}
    row = judge(*(scores[r] for r in (0, plan["join"], plan["rounds"])), pixels(images))
    return {"kind": kind, "seed": seed, **row, "seconds": time.process_time() - began}


def pixels(images: Mapping[str, ByteArray]) -> dict[str, bool]:
    """Whether a classifier on pixels tells each earlier side from the later
    images."""
    seen = dict[str, bool]()
    for side in GROUPS[:2]:
        known, scored = (
            [torch.from_numpy(images[name][at]) for name in (side, "late")]
            for at in (slice(0, None, 4), slice(1, None, 4))
        )
        sides = [pixel_scores(*known, one) for one in scored]
        low, high = auc_interval(auc_estimate(*sides))
        seen[side] = not low <= 0.5 <= high
    return seen


def judge(
    untrained: Scores, model: Scores, last: Scores, shifted: Mapping[str, bool]
) -> dict[str, Any]:
    """AUCs of one federation, and what each rule says of members and where nothing can leak."""
    row: dict[str, Any] = {
        "true": auc(model["early"], model["early_held"]),
        "later": auc(model["early"], model["late"]),
        "last": auc(last["early"], last["late"]),
        "shift": auc(model["early_held"], model["late"]),
        "shift_last": auc(last["early_held"], last["late"]),
    }
    row = {name: round(float(value), 4) for name, value in row.items()}
    for what, side in (("leaks", "early"), ("false", "early_held")):
        row[what] = dict(zip(RULES, rules(untrained, model, last, side), strict=True))
        row[f"{what}_pixels"] = shifted[side]
    return row


def rules(untrained: Scores, model: Scores, last: Scores, side: str) -> tuple[bool, bool, bool]:
    """Whether a leak is established: by the untrained control alone, where the AUC also lies over
    that under the last model, and where that does not lie over a half."""
    sides = [(one[side], one["late"]) for one in (untrained, model, last)]

    def lower(one: tuple[np.ndarray, np.ndarray]) -> float:
        return auc_interval(auc_estimate(*one), ONE_SIDED)[0]

    over = [difference_interval(sides[1], sides[at], ONE_SIDED)[0] > 0 for at in (0, 2)]
    today = lower(sides[1]) > 0.5 and over[0]
    return bool(today), bool(today and over[1]), bool(today and lower(sides[2]) <= 0.5)


def run(plan: Mapping[str, Any], folder: Path, seconds: float, kinds: Sequence[str] = ()) -> None:
    """Make what the folder lacks, those of some kinds first."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for kind, seed in sorted(cells(plan), key=lambda cell: cell[0] not in kinds):
        path = folder / f"{kind}-{seed}.json".replace(" ", "_")
        if time.monotonic() - began > seconds:
            return
        if not path.exists():
            path.write_text(json.dumps(federation(plan, kind, seed)))
            print(path.name, flush=True)


def answer(plan: Mapping[str, Any], rows: Sequence[dict[str, Any]], short: bool) -> dict[str, Any]:
    """The answer to every question of the plan."""
    planned = [*cells(plan)]
    if len(rows) < len(planned) and not short:
        raise SystemExit(f"{len(rows)} of {len(planned)} federations are there: run, or --short")
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in plan["kinds"]}
    judged = {kind: _kind(plan, own) for kind, own in by_kind.items() if own}
    return {
        "short": len(rows) < len(planned), "federations": len(rows), "planned": len(planned),
        "kinds": judged, "cpu_seconds": round(sum(r["seconds"] for r in rows), 1),
        "rows": [*rows], **describe(),
    }  # fmt: skip


def _kind(plan: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    apart = [row["later"] - row["true"] for row in rows]
    low, high = t_interval(apart, plan["together"]) or (-1.0, 1.0)  # all that a difference can be
    least = plan["smallest_effect"]
    alike = -least < low and high < least
    verdict = "alike" if alike else "differ" if low > 0 or high < 0 else "undecided"
    means = {
        name: round(float(np.mean([row[name] for row in rows])), 4)
        for name in ("true", "later", "last", "shift", "shift_last")
    }
    counts = {
        f"{what}_{rule}": _share([row[what][rule] for row in rows])
        for what, rule in itertools.product(("leaks", "false"), RULES)
    }
    counts |= {
        f"{what}_pixels": _share([row[f"{what}_pixels"] for row in rows])
        for what in ("leaks", "false")
    }
    return {
        "n": len(rows), "planned": plan["seeds"]["number"], **means,
        "difference": round(float(np.mean(apart)), 4), "low": round(low, 4), "high": round(high, 4),
        "sd": round(float(np.std(apart, ddof=1)), 4) if len(apart) > 1 else None,
        "verdict": verdict, **counts,
    }  # fmt: skip


def _share(values: Sequence[bool]) -> dict[str, Any]:
    low, high = clopper_pearson(sum(values), len(values))
    return {
        "count": sum(values), "share": round(sum(values) / len(values), 4),
        "low": round(low, 4), "high": round(high, 4),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "answer"))
    parser.add_argument("folder", type=Path, nargs="?", help="of the federations' rows")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin none after so many")
    parser.add_argument("--kinds", nargs="*", default=(), help="that are made first")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    parser.add_argument("--short", action="store_true", help="answer with what is there")
    args = parser.parse_args(arguments)
    plan = load_plan()
    torch.set_num_threads(1)
    if args.what == "run":
        if args.folder is None:
            parser.error("run needs FOLDER")
        run(plan, args.folder, args.seconds, args.kinds)
        return
    if args.folder is None:
        rows = json.loads(args.out.read_text())["rows"]
    else:
        files = [args.folder / f"{k}-{s}.json".replace(" ", "_") for k, s in cells(plan)]
        rows = [json.loads(path.read_text()) for path in files if path.exists()]
    args.out.write_text(json.dumps(answer(plan, rows, args.short), indent=1) + "\n")


if __name__ == "__main__":
    main()
