"""How images are spread over clients, one rule a file.

`fedmia.federation.run` and `fedmia.evaluation` import `split.py`, which gives every image its role.
Start with `base.py`, what a partition is; `iid.py` is the simplest one.
"""
