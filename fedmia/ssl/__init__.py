"""Self-supervised methods, one a file, with their augmentation and the client's local training.

`clients`, `shadows`, `encoders` and the defences import them; the registry builds them by name.
Start with `base`, which says what a method must have, then `simclr`, the shortest one, and `train`.
"""
