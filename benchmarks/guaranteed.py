"""What a guaranteed epsilon costs: the trade-offs of `tradeoffs/guaranteed`, and how many images a
holder needs for epsilon 8, extrapolated.

    python benchmarks/guaranteed.py --work DIR [--only two300,noise300,..]

Each trade-off is one command; ended, it goes on where it was. Its rows go to
benchmarks/results/defences/guaranteed-NAME.json.

The extrapolation: at one sampling rate and number of steps the noise on a mean gradient is
sigma C / (q N). So the noise of epsilon E at N images is that of epsilon 8 at N sigma_8 / sigma_E.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from fedmia import StudyResult, open_study
from fedmia.defenses.accounting import noise_for
from fedmia.report.publish import json_text
from fedmia.study.views.tradeoff import point_rows

RESULTS = Path(__file__).parent / "results" / "defences"
PRESET = "tradeoffs/guaranteed"
IMAGES, BATCH, EPOCHS, DELTA = 300, 32, 30, 1e-5  # of the preset
AT = 8.0
EPSILONS = (8.0, 50.0, 500.0)
MAE = (
    "--ssl mae --ssl.norm_pix false --ssl.mask 0.5 --ssl.decoder_width 32 --ssl.decoder_heads 2 "
    "--ssl.decoder_depth 1 --model vit-tiny --model.width 48 --model.heads 3 --model.depth 4 "
    "--model.pool mean --train.local_epochs 16 --train.optimizer adamw --train.lr 0.002 --seeds 3 "
)
# At epsilon .05 noise is all: the weights move as far as at 8, as the rate falls with the noise.
TRADEOFFS = {
    "two300": "",
    "noise300": "--strengths dpsgd.epsilon=0.05",
    "nine16": "--clients 10 --partition dirichlet --split.members 144 --train.batch_size 16 "
    "--strengths dpsgd.epsilon=8",
    "mae300": MAE + "--strengths dpsgd.epsilon=8",
    "one600": "--clients 2 --split.members 600 --strengths dpsgd.epsilon=8",
}


def extrapolated() -> list[dict[str, float]]:
    """For each epsilon its noise multiplier, and the images at which epsilon 8 has its noise."""
    steps, rate = EPOCHS * -(-IMAGES // BATCH), BATCH / IMAGES
    sigma = {e: noise_for(e, DELTA, rate, steps, "rdp") for e in EPSILONS}
    return [
        {"epsilon": e, "noise_multiplier": s, "images_at_epsilon_8": IMAGES * sigma[AT] / s}
        for e, s in sigma.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default=",".join(TRADEOFFS), help="names, of all these")
    options = parser.parse_args()
    rows = extrapolated()
    (RESULTS / "guaranteed-images.json").write_text(json.dumps(rows, indent=1) + "\n")
    for name in filter(None, options.only.split(",")):
        out = options.work / name
        command = [sys.executable, "-m", "fedmia.study", PRESET, *TRADEOFFS[name].split()]
        subprocess.run([*command, "--jobs", "1", "--out", str(out), "--quiet"], check=True)
        (RESULTS / f"guaranteed-{name}.json").write_text(json_text(summarize(open_study(out))))


def summarize(study: StudyResult) -> dict[str, Any]:
    """The points of a study of defences, as pages cite them."""
    points = []
    for point in point_rows(study):
        attacks = [
            {**vars(row), "name": row.attack, "auc_ci_simultaneous": row.auc.ci_simultaneous}
            for row in point.attacks.values()
        ]
        own = {name: value for name, value in vars(point).items() if name != "leak"}
        points.append({**own, "label": point.point, "attacks": attacks})
    return {"sentence": study.sentence, "points": points, "config": dict(study.settings)}


if __name__ == "__main__":
    main()
