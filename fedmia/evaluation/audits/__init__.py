"""What an audit is made of: images in their roles, views of the encoder, shadow encoders.

`fedmia.evaluation.encoder` and `fedmia.study` import it. Start with `attack_suite.py`, the
attacks on one encoder; `images.py` gives the images their roles.
"""
