"""Arrays in, numbers out: the statistics of membership inference, each a pure function.

`auc` (DeLong's variance, its interval, paired differences), `thresholds` (decisions, TPR at an
FPR), `intervals` (Wilson, Clopper and Pearson, MOVER), `matching` (members against non-members of
the same kinds, and their null), `by_client` (whose image was it), `pvalues` (Holm), `spread`
(between models).

They need numpy and scipy alone, and take their randomness as an argument. A higher score says
member.
"""
