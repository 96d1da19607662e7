"""Tables II to IV and Figs. 5 to 13 of Chen et al., "Membership Information Leakage in Federated
Contrastive Learning", from the folder of one run.

The command `python -m research.papers run` imports it, through `research.papers.federated.view`.
Start with `gather.gather_results`; `tables`, `curves` and `feature_pairs` show its
results.
"""
