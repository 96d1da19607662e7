"""The rounds of a federation over Flower, and the files that they leave.

`fedmia.evaluation` and `fedmia.flower` import `run.py`. Start there: it prepares a run and chooses
the backend. `rounds.py` follows the branches; `inline.py` and `cluster.py` are the backends.
"""
