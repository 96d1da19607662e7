"""Shadow encoders: the attacker trains them itself, on images whose membership it knows.

`evaluation.audits` imports them; attacks see them as `threat.Shadow`. Start with `plan` (what the
attacker knows and chooses), then `draw` (who trains on which images) and `train`.
"""
