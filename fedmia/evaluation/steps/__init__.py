"""The steps of scoring, once each: for a run, an encoder and a node alike.

`fedmia.evaluation.run`, `encoder` and `node` import them. Start with `suite.py` and `scorer.py`,
which fit and score one attack; `assemble.py` puts the results together.
"""
