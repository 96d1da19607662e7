"""Names of the files in the folder of a run or an audit, and the version of its format."""

from __future__ import annotations

FORMAT = 1  # of a folder; its config.yaml says it under `_run`

LOCK = ".lock"  # while a command is at work in it: its process and host
CONFIG = "config.yaml"  # complete settings, and where and with what the run took place
REPORT = "report.json"
PAGE = "report.html"
SCORES = "scores.csv"  # a row an image, a column an attack
EXPOSED = "exposed.csv"  # members by falling score, the first ones
CURVES = "curves.npz"  # losses by round of an active attack
TABLE = "table.parquet"  # every number of the report, a row each
TABLE_TEXT = "table.csv"  # the same
FIGURES = "figures"  # NAME.png, NAME.pdf
RECORDING = "recording"  # models and updates by branch and round
CHECKPOINT = "checkpoint"  # of a run that is not finished: what --resume goes on with
CHECKPOINT_INDEX = "index.json"  # in it, written last: without it there is nothing to go on with
ATTACKS = "attacks"  # of an audit: finished attacks, to be gone on with
SHADOWS = "shadows"  # of an audit: the attacker's own encoders
ANSWERS = "answers.sqlite"  # of an audit: what an API answered to each image
