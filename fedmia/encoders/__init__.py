"""Encoders that a user brings to an audit: runs, exported programs, checkpoints, models by name.

Audits, comparisons of heads and `fedmia.api` load them here. One form of `--encoder` a file.
Start at `base.load`; a form of your own subclasses `base.EncoderForm`.
"""
