"""Probes: the utility of features (kNN, linear), and membership scores from pixels alone.

`evaluation.steps` imports them for the report's utility and for its pixel control.
Start with `utility`.
"""
