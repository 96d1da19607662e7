"""How images are spread over clients, one rule a file.

`fedmia.federation.plan` and `fedmia.evaluation` import `split.py`, which gives images their roles.
Start with `base.py`, what a partition is; `iid.py` is the simplest one.
"""
