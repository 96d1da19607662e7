"""What attacks are scored on: the models that a federation left behind, or one encoder.

`base.py` says what any source of models gives, `kept.py` reads a recording or files of models,
`attacker.py` is what an attacker has beside a model. A run of fedmia's own gives the same
(`fedmia.federation.result`).
"""
