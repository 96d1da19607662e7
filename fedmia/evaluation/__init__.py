"""From models to scores.

`steps` are what all evaluations share, each once. `federated` and `audits` are what an attacker has
of a federation's models and of an encoder that somebody brings. `run`, `encoder` and `node` lead
from a federated run, an audit and a node with images of its own to `RunScores`.
"""
