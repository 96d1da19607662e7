"""What an audit is made of: models and images in their roles, shadow encoders, rounds of others.

`fedmia.evaluation.encoder` and `fedmia.study` import it. Start with `prepare.py`, which loads the
models and the images; `images.py` gives the images their roles.
"""
