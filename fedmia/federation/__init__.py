"""Plan a run, train it over Flower, and keep what is scored.

Start with `plan.py`: the images and their roles. `train.py` chooses the backend, and `rounds.py`
follows the branches; `inline.py` and `cluster.py` are the backends. `result.py` is what is left,
`notetaker.py` notes what an active client reads; `fedmia.evaluation` scores both.
"""
