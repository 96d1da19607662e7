"""From models to scores. Nothing here trains, and nothing needs Flower.

`steps` are what all evaluations share, each once. `models` and `trajectories` are the attacks on
what a run left, `audits` those on what somebody brings. `run`, `encoder` and `federation` lead from
a run, an encoder and the rounds of any federation to `RunScores`.
"""
