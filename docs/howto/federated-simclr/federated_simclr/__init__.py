"""Federated SimCLR on Flower, recorded, watched and audited by fedmia."""
