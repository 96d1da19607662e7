"""What the attacker of a federation sees of its models, and notes while the rounds pass.

`fedmia.evaluation.run` imports it. Start with `snapshots.py`, the attacks on the models of finished
rounds; `recorder.py` and `trajectories.py` serve the active attack.
"""
