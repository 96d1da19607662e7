"""fedmia as a Flower app (`flwr run .`), on simulated nodes or on a deployment's.

Flower imports `server.py` and `client.py`, as pyproject.toml says. Start with `server.py`, one run;
`node.py` is one client's process, `private.py` the run on images that never leave their node.
"""
