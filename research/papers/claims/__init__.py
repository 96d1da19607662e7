"""What the papers say, and whether it holds here: the verdicts of every claim.

`research.papers.run` judges the claims of tables over targets (`over_targets.py`),
`research.papers.federated` judges what its paper says of ascent in one run (`of_ascent.py`). Start
with `over_targets.judge_claims`. `targets_needed` says how many targets an undecided claim would
take.
"""

from research.papers.claims.rule import FAILS as FAILS
from research.papers.claims.rule import HOLDS as HOLDS
from research.papers.claims.rule import UNDECIDED as UNDECIDED
from research.papers.claims.rule import answer as answer
from research.papers.claims.sample_size import chance_to_decide as chance_to_decide
from research.papers.claims.sample_size import deviation_limits as deviation_limits
from research.papers.claims.sample_size import targets_needed as targets_needed

NOT_RUN, EQUIVALENT, NO_TEST = "not run", "equivalent", "no test"
