"""What `fedmia simulate --plan` says of memory: counted, and measured in the pilot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from clients.client_group import count_together
from clients.client_setup import ClientSetup
from fedmia.data.cast import KNOWN, SCORED
from fedmia.evaluation.outlook import FIGURES, grow, pick
from fedmia.federation.backends import count_workers
from fedmia.federation.ledger import ROOM
from fedmia.federation.plan import Plan
from fedmia.federation.result import TrainedRounds
from fedmia.federation.schedule import Schedule
from fedmia.recording.branches import MAIN
from fedmia.runtime.cores import count_cores
from fedmia.runtime.memory import MB, SLACK, Watermark, foresee_phase, foresee_phases, megabytes
from fedmia.seeding import rng
from fedmia.settings.commands.experiment import Experiment
from fedmia.ssl.footprint import training_bytes
from strategies.cohort import draw_cohort

SPILLED = 3  # times the room for clients' states, where they go to the disk and come back


def foresee_memory(
    memory: Watermark, plan: Plan, result: TrainedRounds, drawn: bool
) -> dict[str, Any]:
    """What the run will have in memory, by the rule of `fedmia.runtime.memory`.

    Measured in the pilot: its training, whose clients, batches and network are those of the run,
    and what its attacks and its report add, which grows with the images. Counted: clients at work,
    with all that a later round brings them; what clients keep after all rounds; the layers that
    `internal` reads one by one in scored rounds; the figures; what the allocator keeps.
    Not counted: other processes of a deployment, and caches of the disk.

    Args:
        memory: watched the pilot.
        plan: of the run.
        result: of the pilot.
        drawn: whether figures are drawn.

    Returns:
        As `fedmia.runtime.memory.foresee_phases`; `one_client_mb` by part, and `clients_at_work`.
    """
    whole, setup = plan.experiment, result.client_setup
    data, client = plan.cast.data.images, client_bytes(setup, result)
    at_once, each = count_together(setup)[0], sum(client.values())
    if whole.machine.backend == "ray":  # a process for each
        at_once = 1
        cpus = whole.machine.cpus_per_client or whole.machine.threads_per_client
        workers, each = max(1, int(count_cores() / cpus)), each + memory.start
    else:
        workers = count_workers(setup, at_once)
    at_work = min(cohort_size(whole), workers * at_once)
    base = {
        "program": memory.start,
        "images": data.nbytes + data[:1].nbytes * len(plan.cast.used),
    }
    before, after = (
        base | {"clients' states": kept_bytes(result, run, placebo)}
        for run, placebo in (
            (result.plan.experiment, False), (whole, bool(plan.cast.placebo_parts)),
        )
    )  # fmt: skip
    working = {"clients at work": at_work * each}

    def foresee(phase: str, own: Mapping[str, float], growth: float) -> dict[str, float]:
        measured = memory.starts[phase], memory.added[phase]
        shared = working if phase == "training" else {}
        return foresee_phase(*measured, {**before, **shared}, {**after, **shared, **own}, growth)

    training = foresee("training", {}, 1.0)
    training["freed"] = SLACK * (sum(training.values()) - sum(base.values()))
    growth = grow(plan.cast, sum(len(pick(len(plan.cast.ids(role)))) for role in SCORED))
    layers = layer_bytes(plan, result) if "internal" in whole.attacks else 0
    scoring = max(1, count_cores() // setup.threads)
    phases = {
        "training": training,
        "attacks": foresee("attacks", {"layers": 2.0 * min(2, scoring) * layers}, growth),
        "report": foresee("report", {"figures": FIGURES * drawn}, growth),
    }
    largest = max(client, key=lambda name: client[name])
    slims = "train.batch_size" if largest in ("activations", "views") else "model"
    lowers = {
        "images": "data.size",
        "clients' states": "federation.clients",
        "clients at work": "machine.clients_at_once" if at_once > 1 else slims,
        "more images": "split.scored",
        "layers": "split.scored",
    }
    about = {"one_client_mb": megabytes(client), "clients_at_work": at_work}
    about["at_work_mb"] = training["clients at work"] / MB
    return {**foresee_phases(phases, lowers), **about, "card": setup.device != "cpu"}


def cohort_size(experiment: Experiment) -> int:
    """Clients of a round."""
    phase = Schedule(experiment).phase(MAIN, 0, experiment.federation.rounds, craft=False)
    return len(draw_cohort(phase, 1, experiment.federation.clients))


def client_bytes(setup: ClientSetup, result: TrainedRounds) -> dict[str, int]:
    """Bytes of the client with the most images at work in a later round, by part.

    Args:
        setup: what all clients share.
        result: of the pilot.

    Returns:
        As `training_bytes`, with its `images`, and the `copies` that a round has: of the weights as
        they came and as they leave, of what the client keeps as it was, in use, and as it leaves.
    """
    parts = setup.parts["members"]
    client = max(range(len(parts)), key=lambda c: len(parts[c]))
    on_cpu, images = replace(setup, device="cpu", stop=None), setup.images[parts[client]]
    job = on_cpu.job(on_cpu.method(client, len(images)), images, 1, rng(0, "pilot"))
    own = training_bytes(job)
    copies = 2 * own["weights"] + 3 * state_bytes(result)
    return {**own, "images": images.nbytes, "copies": copies}


def state_bytes(result: TrainedRounds) -> int:
    """Bytes of what one client keeps after its round; 0 where none keeps anything."""
    states = (result.store.load(MAIN, c) for c in range(len(result.client_setup.roles)))
    state = next((one for one in states if one is not None), None)
    return 0 if state is None else sum(tensor.nbytes for tensor in state.tensors.values())


def kept_bytes(result: TrainedRounds, experiment: Experiment, placebo: bool) -> int:
    """Bytes of memory for what clients keep after the last round of an experiment.

    Args:
        result: of the pilot.
        experiment: of the pilot or of the run.
        placebo: whether it has a placebo.

    Returns:
        The bytes; where they are more than the room for them, `SPILLED` times that.
    """
    schedule, clients = Schedule(experiment), experiment.federation.clients
    phase, drawn = schedule.phase(MAIN, 0, schedule.last, craft=False), set[int]()
    for round in range(1, schedule.last + 1):
        drawn |= {*draw_cohort(phase, round, clients)}
        if len(drawn) == clients:
            break
    size = state_bytes(result) * len(drawn) * len(schedule.branches(placebo))
    return size if size <= ROOM else SPILLED * ROOM


def layer_bytes(plan: Plan, result: TrainedRounds) -> int:
    """Bytes of what all layers answer about the scored and the known images.

    Args:
        plan: of the run.
        result: of the pilot.

    Returns:
        The bytes, in float32.
    """
    encoder = result.client_setup.method(-1, None).encoder
    one = result.client_setup.pixels(plan.cast.ids(SCORED[0])[:1])
    with torch.no_grad():
        outputs = encoder.eval().features(one, encoder.layers)
    return sum(t.nbytes for t in outputs.values()) * sum(
        len(plan.cast.ids(r)) for r in (*SCORED, *KNOWN)
    )
