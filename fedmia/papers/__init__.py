"""Tables II to IV and Figs. 5 to 13 of Chen et al., "Membership Information Leakage in Federated
Contrastive Learning", from the folder of one run.

The command `python -m fedmia.paper` imports it, through `fedmia.study.views.paper`.
Start with `gather.gather_results`; `tables`, `curves`, `feature_pairs` and `claims` show its
results.
"""
