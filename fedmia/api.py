"""fedmia from Python: what a user types, with the options of the command line.

    run = fedmia.run_simulation(clients=10, attacker="active", out="RUN")
    audit = fedmia.audit_encoder(encoder, members, others)
    attacker = fedmia.view(encoder)  # for one attack: attack.fit(attacker, ..), attack.score(..)

In place of names they take objects of a notebook: attacks, images, networks. What runs is the
command itself. Each function imports what it needs: `view` needs little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedmia.encoders.memory import Encoder, InMemory
from fedmia.runs import Run
from fedmia.runs import open_run as open_run
from fedmia.runtime.numerics import default_numerics
from fedmia.settings.errors import InputError
from fedmia.settings.values import disk_path
from fedmia.ssl.augment import Augment
from fedmia.threat import BlackBox, Labels, Shadow, WhiteBox

if TYPE_CHECKING:
    import pandas as pd

    from fedmia.door.arguments import Config
    from fedmia.study.result import StudyResult


@default_numerics()
def run_simulation(
    config: Config = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    quiet: bool = False,
    observe: Sequence[str] = (),
    trust_plugins: bool = False,
    **options: Any,
) -> Run:
    """Simulate federated self-supervised training, attack it, and report what leaks.

    The same as `fedmia simulate`: same options, same defaults, same numbers for the same seed.

        run = fedmia.run_simulation(clients=10, attacker="active", out="RUN")
        run.verdict
        run.attacks["auc"]

    The first Ctrl-C (in Jupyter: interrupt) ends the rounds and reports on the finished ones; the
    second ends at once.

    Args:
        config: preset, YAML file or nested mapping that the options are laid over; None: the
            defaults.
        out: folder of the results; None: a temporary one, which is removed with the `Run`.
        resume: folder of an interrupted run, to be continued with its own settings. Objects that
            it was started with are passed again, in the same options.
        quiet: show no progress.
        observe: observers of the run, such as `tensorboard`.
        trust_plugins: import plugins from outside that the folder of a run names.
        options: every flag of `fedmia simulate` with `_` for `-` (`clients=10`,
            `min_clients=2`), or a section as a mapping (`partition={"alpha": 0.1}`). Objects in
            place of names: `attacks=["similarity", MyAttack()]`; `dataset=` arrays, tensors, (N,
            C, H, W), with labels as a pair, a torch Dataset or DataLoader, a folder as a path;
            `model=` a function that returns a torch module.

    Returns:
        The run, finished or interrupted.

    Raises:
        InputError: bad input, in one line; nothing is written.
        FederationError: the federation failed; `out` has the report of its finished rounds.
    """
    from fedmia.cli.command import INTERRUPTED, Invocation
    from fedmia.cli.commands import SIMULATE
    from fedmia.door.arguments import build_settings, resumed_settings
    from fedmia.door.results import interruptible, open_results, results_folder
    from fedmia.report.publish import say_not_run
    from fedmia.runtime.stopwatch import Stopwatch
    from fedmia.simulate import run_experiment
    from fedmia.storage.runfolder import RunFolder
    from strategies.failure_policy import FederationError

    watch = Stopwatch(time.perf_counter())
    names = tuple(observe.split(",") if isinstance(observe, str) else observe)
    if resume is not None:
        settings = resumed_settings(Path(disk_path(resume)), config, out, options, trust_plugins)
    else:
        settings = build_settings(SIMULATE, config, options, trust_plugins)
    with results_folder(resume or out) as folder, interruptible("rounds") as stop:
        invocation = Invocation(settings, folder, quiet, observe=names, resume=resume is not None)
        report, code = run_experiment(invocation, watch, stop)
        say_not_run(report, quiet=quiet)
        if code == INTERRUPTED and out is not None and RunFolder(folder).begun():
            again = f"run_simulation(resume={str(folder)!r}) goes on with this run"
            print(f"fedmia: {again} from its last checkpoint", file=sys.stderr)
        if report.failure is not None:
            raise FederationError(f"{report.failure}; the finished rounds are reported on")
        return open_results(folder, temporary=not (resume or out))


@default_numerics()
def audit_encoder(
    encoder: Encoder | str | Path | Run,
    members: Any = None,
    others: Any = None,
    *,
    attacks: Any = "auto",
    out: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Attack an encoder with membership inference, and report what leaks.

        audit = fedmia.audit_encoder(encoder, members, others)

    Args:
        encoder: a torch module from normalised pixels (B, C, H, W) to vectors (B, D), maps or
            tokens; a method of `fedmia.ssl`; a `Run`; or what `--encoder` takes (`hf:FOLDER`,
            `FILE.pth`, the folder of a run).
        members: images that it was trained on: uint8 or float [0, 1] array or tensor, (N, C, H,
            W), (N, H, W, C) or (N, H, W); a pair of it and labels; a torch Dataset or DataLoader;
            a folder or a list (.csv, .tsv) as a path; a data source by name. None: those of the run
            that `encoder` names.
        others: images of the same distribution that it was not trained on, likewise. None: those of
            the list that `members` names.
        attacks: `auto`, `quick`, `all`, names, classes, or instances with their options.
        out: folder of the results; None: a temporary one, which is removed with the `Run`.
        quiet: show no progress.
        options: every flag of `fedmia audit` with `_` for `-` (`known=50`, `shadows=4`, `mean`,
            `shadow={"epochs": 200}`, `attack={"lpla": {"p": 1}}`; `augment` also as an `Augment`,
            `shadow_data` as `members`, `groups` also as two arrays, a subject of each image). Of a
            module also `name`, what the report calls it; its
            `device` is `cpu` where none is given.

    Returns:
        The audit as a `Run`: `attacks`, `scores`, `table`, `figure`.

    Raises:
        InputError: bad input, in one line, or no attack could run.
    """
    from fedmia.door.arguments import image_range
    from fedmia.door.auditing import audit, take_groups
    from fedmia.door.images import check_order, name_images

    trust = bool(options.pop("trust_plugins", False))
    placed = [name for name in ("groups", "owners", "order") if options.get(name) is not None]
    of_rounds = {
        name: options.pop(name)
        for name in ("owners", "loss", "order")
        if not isinstance(options.get(name), str | Path | None)
    }
    if isinstance(encoder, str | Path | Run):
        options["encoder"] = str(encoder.folder if isinstance(encoder, Run) else encoder)
        objects = InMemory(**of_rounds)
    else:
        options.setdefault("device", "cpu")
        objects = InMemory(encoder, options.pop("name", None), **of_rounds)
    limits = image_range(options)
    groups = take_groups(options)
    sides = (("members", "members", members), ("nonmembers", "others", others))
    for (side, what, images), subjects in zip(sides, groups, strict=True):
        for option in placed:
            if side == "members" or option == "groups":  # others are of members alone
                check_order(images, what, option)
        if images is not None:
            options[side] = name_images(images, what, limits, subjects)
        elif objects.encoder is not None and not options.get("members", "").startswith("list:"):
            raise InputError(f"{what} is missing: images that a module was (not) trained on")
    return audit(options | {"attacks": attacks}, objects, out, quiet, trust)


@default_numerics()
def audit_embeddings(
    members: Any,
    others: Any,
    *,
    attacks: Any = "auto",
    out: str | Path | None = None,
    name: str | None = None,
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Attack an encoder of which only the vectors of images are at hand.

        audit = fedmia.audit_embeddings(member_vectors, other_vectors)

    The same as `fedmia audit --member-embeddings FILE --nonmember-embeddings FILE`.

    Args:
        members: vectors of images that the encoder was trained on, a row an image: array or tensor
            (N, D), or (N, V, D) with V views of each image; or the path of a file of them (.npy,
            .npz, .parquet, .safetensors).
        others: of images of the same distribution that it was not trained on, likewise.
        attacks: as of `audit_encoder`; those that need images or the encoder are named as not run.
        out: folder of the results; None: a temporary one, which is removed with the `Run`.
        name: what the report calls the encoder; None: after the members' vectors.
        quiet: show no progress.
        options: as of `audit_encoder`, but for those of an encoder, of images and of shadows.

    Returns:
        The audit as a `Run`, which has no `images`.

    Raises:
        InputError: bad input, in one line: no vectors, sides that are unlike, too few rows.
    """
    from fedmia.door.auditing import audit, read_sides, take_groups

    trust = bool(options.pop("trust_plugins", False))
    groups = take_groups(options)
    files, vectors = read_sides({"members": members, "nonmembers": others}, groups)
    objects = InMemory(name=name, vectors=vectors)
    return audit(options | files | {"attacks": attacks}, objects, out, quiet, trust)


@default_numerics()
def audit_federation(
    recording: str | Path,
    net: Any,
    members: Any = None,
    others: Any = None,
    *,
    owners: Any = None,
    loss: Any = None,
    attacks: Any = "auto",
    out: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Attack the models of a federation's rounds, and report what leaks by round and client.

        audit = fedmia.audit_federation("REC", Net, members, others, owners=clients)

    Args:
        recording: folder that `fedmia.flower.record` wrote, or a pattern of files of models, one a
            round (`rounds/*.npz`).
        net: a function that returns the network that was trained, or a module of it, or what
            `--encoder` takes by name.
        members: images that any client trained on, as of `audit_encoder`.
        others: images of the same distribution that none trained on, likewise; or `later`: those
            of `members` that the federation trained on only after round `round=` (none: the one
            that leaves the most balanced sides). When each was first trained on, the rounds of
            its client say, or `order=`, integers (N,) or a CSV file under `image,round`.
        owners: the client of each member: integers (N,), or a CSV file under `image,client`; None:
            not known.
        loss: with which clients trained, of (network, float pixels (N, C, H, W) in [0, 1]): a
            loss of each image (N,); or `package.module:NAME` of it; None: not known.
        attacks: as of `audit_encoder`, and those of a client and of the server.
        out: folder of the results; None: a temporary one, which is removed with the `Run`.
        quiet: show no progress.
        options: as of `audit_encoder`.

    Returns:
        The audit as a `Run`; `rounds` has leakage by round.

    Raises:
        InputError: bad input, in one line, or no attack could run.
    """
    files = has_magic(str(recording)) and not Path(disk_path(recording)).is_dir()
    of_rounds = {"owners": owners, "loss": loss}
    of_rounds["checkpoint" if files else "federation"] = str(recording)
    options |= {name: value for name, value in of_rounds.items() if value is not None}
    if callable(net) and not isinstance(net, torch.nn.Module):
        options.setdefault("name", getattr(net, "__name__", "network"))
        net = net()
    return audit_encoder(net, members, others, attacks=attacks, out=out, quiet=quiet, **options)


@default_numerics()
def rank_suspects(
    recording: str | Path,
    net: Any = None,
    public: Any = None,
    *,
    loss: Any = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Which client attacks? Rank clients by how far their updates stand out from the others'.

        suspects = fedmia.rank_suspects("REC", Net, public_images, loss=my_loss)

    It needs no image of a client. Norm and cosine of the updates need no network either; with one,
    and images that no client trained on, their loss counts, too. An audit of a recording with
    updates has the same table in its report.

    Args:
        recording: folder that `fedmia.flower.record` wrote with the updates of clients.
        net: a function that returns the network that was trained, or a module of it; None: the loss
            is not read.
        public: images that no client trained on, as of `audit_encoder`.
        loss: as of `audit_federation`; a method of `fedmia.ssl` has its own.
        seed: of the views of public images.

    Returns:
        A row a client, by `client`, the most suspicious first: `suspicion` against honest clients
        of as many rounds, as a standard normal value, NaN where nothing that it sent can be
        compared; `alarm`, whether that is further than honest clients stand out, None but for ten
        clients in eight rounds whose loss is read; the `round` in which it stands out most, and of
        that round `norm` over the median client's, `cosine` with the others' mean direction,
        `loss_change` of the public images.

    Raises:
        InputError: bad input, in one line, or a recording without updates that can be compared.
    """
    import pandas as pd

    from fedmia.door.suspects import rank

    return pd.DataFrame(rank(Path(disk_path(recording)), net, public, loss, seed)).set_index(
        "client"
    )


def run_study(
    config: Config = None,
    *,
    over: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] | None = None,
    out: str | Path,
    quiet: bool = False,
    trust_plugins: bool = False,
    **options: Any,
) -> StudyResult:
    """Make many runs, each in a process of its own, and compare them.

    The same as `fedmia study`: the same call goes on with what is not finished.

        study = fedmia.run_study("smoke", over={"partition.alpha": [0.1, 1]}, seeds=5, out="STUDY")

    Args:
        config: preset, YAML file or nested mapping that every run starts from.
        over: path of an option -> its values, or several such mappings; a plugin is a name, a
            class, an instance with its options, or a mapping of `name` and options. Without it,
            one point is run.
        out: folder of the study.
        quiet: show no progress.
        trust_plugins: import plugins from outside that the folders of audited runs name.
        options: as of `fedmia.run_simulation`, and those of `fedmia study` (`seeds=5`,
            `jobs=2`, `baseline="similarity"`, `defenses=["dpsgd"]`, `encoders=["RUN@0", "A.pth"]`
            with the options of `fedmia.audit_encoder`).

    Returns:
        The study, as far as its runs could be done.

    Raises:
        InputError: bad input, in one line; no run is begun.
    """
    from fedmia.cli.commands import STUDY
    from fedmia.door.arguments import build_settings
    from fedmia.door.results import interruptible, session_for_children
    from fedmia.study.command import run_cells

    grids = {} if over is None else {"over": over}
    settings = build_settings(STUDY, config, options | grids, trust_plugins)
    with interruptible("runs") as stop, session_for_children():
        study, _ = run_cells(settings, Path(disk_path(out)), stop, quiet)
    return study


@default_numerics()
def view(
    encoder: Encoder,
    *,
    size: int | None = None,
    channels: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    augment: Augment | None = None,
    device: str | torch.device = "cpu",
    seed: int = 0,
    held: Any = None,
    shadows: Sequence[Shadow] = (),
    labels: Labels | None = None,
    budget: int | None = None,
    access: str | None = None,
    embedding: str | None = None,
    precision: str = "float32",
) -> BlackBox:
    """What an attacker can ask of an encoder: pass it to an attack's `fit` and `score`.

    Attacks that share a view share what they compute; `view.queries` counts as if they did not.

    Args:
        encoder: a module from normalised pixels (B, C, H, W) to vectors (B, D), maps (B, D, h, w)
            or tokens (B, N, D); a method of `fedmia.ssl`; or what `fedmia.encoders.base.load`
            returned. It is copied, and stays as it is.
        size: pixels a side of the images to come; None tries the usual sizes.
        channels: of the images; None: what the first convolution takes.
        mean: mean of each channel, pixels in [0, 1], or one value for all; None: ImageNet's for 3
            channels, else 0.5. A module that normalises by itself takes mean 0 and std 1.
        std: standard deviation of each channel, likewise; None: ImageNet's, else 0.25.
        augment: augmentation of the attacker's views; None: the encoder's, MoCo v2's for a module.
        device: where the encoder runs.
        seed: of the views; a view depends on it and on the image's bytes alone.
        held: (H, C, H, W) images of the attacker's own, as `audit_encoder` takes them, for attacks
            on the contrastive loss, which use them as negatives; the known images will do.
        shadows: encoders that the attacker trained itself, each a `Shadow(view(..), members,
            nonmembers)`, for attacks that use them.
        labels: true classes of images, for the attack that needs them (`baseline-b`).
        budget: most images that may be embedded.
        access: `black_box` or `white_box`; None: all that the encoder grants.
        embedding: which of several outputs is the embedding, by name or number.
        precision: of the forward passes, `float32` or `bfloat16`.

    Returns:
        A `WhiteBox`, or a `BlackBox` where only outputs are at hand.

    Raises:
        InputError: an encoder that takes no such images or returns something else, or access
            that it does not grant.
    """
    from fedmia.door.images import read_images
    from fedmia.encoders.base import LoadOptions
    from fedmia.encoders.memory import load_module
    from fedmia.threat.signals import PixelCache

    options: dict[str, Any] = {"mean": mean, "std": std, "device": device, "embedding": embedding}
    load_options = LoadOptions.from_user(size=size, seed=seed, access=access, **options)
    released = load_module(encoder, load_options, channels=channels)
    own = None if held is None else torch.from_numpy(read_images(held, "held").images)
    if own is not None:
        released.method.fill_bank(own)
    return (WhiteBox if released.access == "white_box" else BlackBox)(
        released.method,
        released.augment if augment is None else augment,
        seed=seed,
        device=load_options.device,
        budget=budget,
        held=own,
        pixels=PixelCache(),
        shadows=shadows,
        labels=labels,
        precision=precision,
    )
