"""What the papers say, and whether it holds here: the verdicts of every claim.

`papers.run` judges the claims of tables over targets (`over_targets.py`), `papers.federated` judges
what its paper says of ascent in one run (`of_ascent.py`). Start with `over_targets.judge_claims`.
"""

HOLDS, FAILS, UNDECIDED, NOT_RUN = "held", "not held", "undecided", "not run"
EQUIVALENT, NO_TEST = "equivalent", "no test"
