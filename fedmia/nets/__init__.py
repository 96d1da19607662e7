"""Backbones, one family a file: networks with named stages and explicitly drawn weights.

The registry builds them by name for `config`, `shadows` and `encoders`; `ssl` puts a head on top.
Start with `base`, which says what a backbone must have, then `smallnet`, the smallest one.
"""
