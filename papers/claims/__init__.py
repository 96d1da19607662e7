"""What the papers say, and whether it holds here: the verdicts of every claim.

`papers.run` judges the claims of tables over targets (`over_targets.py`), `papers.federated` judges
what its paper says of ascent in one run (`of_ascent.py`). Start with `over_targets.judge_claims`.
`targets_needed` says how many targets an undecided claim would take.
"""

from papers.claims.sample_size import chance_to_decide as chance_to_decide
from papers.claims.sample_size import deviation_limits as deviation_limits
from papers.claims.sample_size import targets_needed as targets_needed

HOLDS, FAILS, UNDECIDED, NOT_RUN = "held", "not held", "undecided", "not run"
EQUIVALENT, NO_TEST = "equivalent", "no test"
