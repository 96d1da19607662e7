"""What releases a classification head (Yang et al., 2022): its noise, and how much of it is needed.

`research.papers.heads`, the trial of released heads, imports it. Start with `release.py`, the
mechanisms; `sensitivity.py` says how far one image moves the weights, `stack.py` holds them.
"""
