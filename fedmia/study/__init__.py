"""Studies: many runs in one folder, made side by side, resumed after an interruption and compared.

The commands sweep and tradeoff, and audits of several encoders, import it.
Start with `run.run_study`; `engine` makes the runs, and each `view.View` compares them.
"""
