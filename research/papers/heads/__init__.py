"""Released classification heads: trained, noised, attacked and measured (Yang et al., 2022).

The command `python -m research.papers head` imports it, through `research.papers.heads.command`.
Start with `measure.measure`, all heads of a command; `trial.run_trial` is one head.
"""
