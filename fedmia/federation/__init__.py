"""Plan a run, train it over Flower, and keep what is scored.

Start with `plan.py`: the images and their roles. `train.py` chooses the backend, `rounds.py` follows
the branches, `inline.py` and `cluster.py` are the backends. `result.py` is what is left, and
`readings.py` what an active client read; `fedmia.evaluation` scores both.
"""
