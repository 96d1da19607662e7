"""Released classification heads: trained, noised, attacked and measured (Yang et al., 2022).

The command `python -m fedmia.head` imports it, through `fedmia.study.heads`.
Start with `measure.measure`, all heads of a command; `trial.run_trial` is one head.
"""
