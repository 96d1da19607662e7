"""Defences of a client against leakage, one a file.

`clients` and `fedmia.shadows` import them through the registry. Start with `base.py`, the hooks of
a defence; `weight_decay.py` is the simplest one, `dpsgd.py` the one with a guarantee by steps.
"""
