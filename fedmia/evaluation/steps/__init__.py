"""The steps of scoring, once each, which `fedmia.evaluation.suite` and `score` put together.

Start with `scorer.py`, which fits and scores one attack; `assemble.py` makes what a report is made
of.
"""
