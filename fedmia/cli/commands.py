"""The commands: what their settings are, and what their help says."""

from __future__ import annotations

from fedmia.cli.flags import Command

OUT = ("FOLDER", "folder of the run's results; must not hold another run")
OBSERVE = (
    "NAMES",
    "who is told of rounds, leakage and figures: tensorboard, or package.module:Class",
)
PRESETS = ("*.yaml", "papers/*.yaml")
# Of an experiment, whichever command runs it.
SHORT = {
    "clients": "federation.clients",
    "rounds": "federation.rounds",
    "dataset": "data.name",
    "data_dir": "data.dir",
    "size": "data.size",
    "mean": "data.mean",
    "std": "data.std",
    "partition": "partition.name",
    "model": "model.name",
    "ssl": "ssl.name",
    "strategy": "strategy.name",
    "attack_rounds": "federation.attack_rounds",
    "on_failure": "federation.on_failure",
    "client_timeout": "federation.client_timeout",
    "min_clients": "federation.min_clients",
    "pretrain": "pretrain.mode",
    "pretrain_epochs": "pretrain.epochs",
    "pretrain_rounds": "pretrain.rounds",
    "defense": "defense.name",
}
GROUPS = {
    "Federation": ("federation.", "strategy."),
    "Attacker": ("attacker", "malicious", "attacker_trains", "attacks"),
    "Data": ("data.", "partition.", "split."),
    "Model and training": ("model.", "ssl.", "train.", "pretrain."),
    "Defence": ("defense.", "defended_clients"),
    "Machine": (
        "backend",
        "ray_address",
        "threads_per_client",
        "device",
        "cpus_per_client",
        "gpus_per_client",
        "checkpoint_every",
    ),  # fmt: skip
}

SIMULATE = Command(
    root="fedmia.config.experiment:Experiment",
    runs="fedmia.config.experiment:runs",
    check="fedmia.config.compatibility:check",
    usage="usage: python -m fedmia.simulate [--config FILE] [--FLAG VALUE ..]",
    intro=(
        "Simulate federated self-supervised training under membership inference, and report what "
        "leaks. Values come from the defaults, then --config, then the flags."
    ),
    outro=(
        "A plugin's own options follow its flag: --partition dirichlet --partition.alpha 0.1, "
        "--attack.NAME.OPTION VALUE. --list shows every plugin, --list KIND its options. Every "
        "option can also be given by its path in the YAML file: --federation.clients 10."
    ),
    own={
        "out": OUT,
        "resume": (
            "RUN",
            "folder of a run that was cut short: go on where it stood, with its own settings; of a "
            "finished run print the report",
        ),
        "observe": OBSERVE,
        "config": ("FILE", "YAML file, a finished run's config.yaml, or the name of a preset"),
    },
    short=SHORT,
    groups=GROUPS,
    presets=PRESETS,
    gone={"seeds": "python -m fedmia.sweep --seeds N --out FOLDER runs several seeds"},
)

SWEEP = Command(
    root="fedmia.config.sweep:Sweep",
    runs="fedmia.config.sweep:runs",
    check="fedmia.config.sweep:check",
    usage=(
        "usage: python -m fedmia.sweep [CONFIG] [--grid OPTION=VALUE,VALUE,..] [--seeds N] "
        "--out FOLDER [--FLAG VALUE ..]"
    ),
    intro=(
        "Run an experiment at every point of a grid with several seeds, side by side, and compare "
        "the models. The same command again goes on where it was ended; one that adds values or "
        "seeds runs only what is new."
    ),
    outro=(
        "Flags of an experiment hold for every run. --grid may be given for several options: "
        "--grid strategy=fedavg,fedprox --grid partition.alpha=0.1,1; values that are lists stand "
        "between semicolons. In the YAML file, beside the options of an experiment: seeds: 5, and "
        "grid: {partition.alpha: [0.1, 1]}, or a list of such grids, whose runs add up. base: NAME "
        "starts from another file or preset. FOLDER/cells holds a folder for each run, as "
        "python -m fedmia.simulate writes it."
    ),
    own={
        "out": ("FOLDER", "folder of the runs and of what compares them; begun ones are gone on"),
        "config": ("FILE", "YAML file of an experiment or a sweep, or the name of a preset"),
    },
    short=SHORT,
    groups={"Sweep": ("seeds", "jobs", "keep_snapshots"), **GROUPS},
    presets=(*PRESETS, "sweeps/*.yaml"),
    bare="config",
)

TRADEOFF = Command(
    root="fedmia.config.tradeoff:Tradeoff",
    runs="fedmia.config.tradeoff:runs",
    check="fedmia.config.tradeoff:check",
    usage=(
        "usage: python -m fedmia.tradeoff [CONFIG] --defenses NAME,NAME,.. "
        "[--strengths NAME=VALUE,VALUE,..] [--seeds N] --out FOLDER [--FLAG VALUE ..]"
    ),
    intro=(
        "Defences at several strengths, each in federations of several seeds: what still leaks, "
        "what is left of the encoder's use, and which of them leaks least within 5 % of the "
        "undefended kNN. A sweep, which the same command goes on with after any end."
    ),
    outro=(
        "Flags of an experiment hold for every run, but the attacker is passive unless --attacker "
        "says otherwise, and two models of each run are evaluated (--federation.snapshots 1). Each "
        "defence has strengths of its own; --strengths gaussian=0.01,0.1 --strengths "
        "dpsgd.epsilon=2,8 says others. In the YAML file: defenses: [dpsgd, gaussian] and "
        "strengths: {gaussian: [0.01, 0.1]}. FOLDER holds tradeoff.html, tradeoff.json, and the "
        "page of the sweep, sweep.html."
    ),
    own={
        "out": ("FOLDER", "folder of the runs and of what compares them; begun ones are gone on"),
        "config": ("FILE", "YAML file of an experiment or a trade-off, or the name of a preset"),
    },
    short=SHORT,
    groups={"Trade-off": ("defenses", "seeds", "jobs", "keep_snapshots"), **GROUPS},
    presets=(*PRESETS, "tradeoffs/*.yaml"),
    bare="config",
)

AUDIT = Command(
    root="fedmia.config.series:Series",
    runs="fedmia.config.audit:runs",
    usage=(
        "usage: python -m fedmia.audit --encoder ENCODER[,ENCODER..] --members DATASET "
        "--nonmembers DATASET [--seeds N] [--FLAG VALUE ..]"
    ),
    intro=(
        "Every membership attack that can run, on an encoder that you bring: a fedmia run (its own "
        "images unless others are given), an exported program, or a model by name."
    ),
    outro=(
        "Options of an attack: --attack.NAME.OPTION VALUE (--list shows them). Of a data source: "
        "--members.OPTION, --nonmembers.OPTION, --shadow-data.OPTION. Of the shadows' training: "
        "--shadow.knowledge data,architecture, --shadow.epochs 200, --shadow.size, "
        "--shadow.online true, options of training (--shadow.lr, --shadow.momentum), and stand-ins "
        "for the unknown, --shadow.model NAME and --shadow.ssl NAME with --shadow.model.OPTION and "
        "--shadow.ssl.OPTION; of --shadow-defense NAME: --shadow-defense.OPTION, its rounds a "
        "shadow's epochs. Of the attacker's views: --augment.crop_min 0.2 and so on. --config "
        "OUT/config.yaml repeats an audit; the same --out goes on with one that was cut short. "
        "Several encoders (RUN@0,10,20: rounds that a run kept; A.pth,B.pth) or --seeds N make a "
        "series: what leaks and what use is left from encoder to encoder, in OUT/series.html and "
        "series.json; OUT/cells holds a folder for each audit, and --cache FOLDER shares shadows."
    ),
    own={
        "out": ("FOLDER", "folder of the results"),
        "config": ("FILE", "YAML file of an audit"),
    },
    short={"shadow_defense": "shadow_defense.name"},
    alias={
        "data.dir": "data_dir",
        "data.size": "size",
        "data.mean": "mean",
        "data.std": "std",
        "model.name": "shadow.model",
        "ssl.name": "shadow.ssl",
    },
    groups={
        "Encoder": (
            "encoder",
            "checkpoint",
            "checkpoint_key",
            "allow_missing",
            "allow_random",
            "size",
            "mean",
            "std",
            "precision",
        ),
        "Images": ("members", "nonmembers", "data_dir", "known", "limit"),
        "Attacks": ("attacks", "query_budget", "sweep"),
        "Shadow encoders": (
            "shadows",
            "shadow_data",
            "shadow_encoders",
            "shadow_defense.name",
            "cache",
        ),
        "Machine": ("device", "threads"),
        "Several": ("seeds", "jobs"),
    },
    listed="attack",
)

PAPER = Command(
    root="fedmia.config.paper:Paper",
    usage="usage: python -m fedmia.paper RUN [--out FOLDER] [--FLAG VALUE ..]",
    intro=(
        "Tables II to IV and Figs. 5 to 13 of Chen et al., Membership Information Leakage in "
        "Federated Contrastive Learning, from the folder of one finished run: accuracy beside "
        "AUC. The attacks are those of the run, scored again on its snapshots."
    ),
    outro="The run's data are read again from where its config.yaml says that they lie.",
    own={"out": ("FOLDER", "folder of tables, figures and page (none: RUN/paper)")},
    bare="run",
)

HEAD = Command(
    root="fedmia.config.head:Head",
    usage="usage: python -m fedmia.head --encoder ENCODER [--data DATASET] [--FLAG VALUE ..]",
    intro=(
        "A classification head, fine-tuned on few labelled images on top of an encoder and "
        "released with noise on its weights: what membership attacks find in its answers, and "
        "what the noise costs, for each mechanism and epsilon. Figs. 1 and 2 of Yang et al., "
        "Additive Logistic Mechanism for Privacy-Preserving Self-Supervised Learning."
    ),
    outro="Options of the data source: --data.OPTION VALUE.",
    own={
        "out": ("FOLDER", "folder of head.json, figures and page"),
        "config": ("FILE", "YAML file of these options"),
    },
    alias={"data.dir": "data_dir", "data.size": "size", "data.mean": "mean", "data.std": "std"},
    groups={
        "Encoder": ("encoder", "checkpoint", "size", "mean", "std"),
        "Head": ("data", "data_dir", "images", "hidden", "epochs", "batch_size", "lr",
                 "weight_decay"),
        "Noise": ("mechanisms", "epsilons", "delta", "samples", "draws"),
        "Machine": ("seeds", "seed", "device", "threads"),
    },
)  # fmt: skip

COMMANDS = {
    "simulate": SIMULATE,
    "audit": AUDIT,
    "sweep": SWEEP,
    "tradeoff": TRADEOFF,
    "head": HEAD,
    "paper": PAPER,
}
