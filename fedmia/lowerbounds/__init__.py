"""Lower bounds of epsilon: what guesses of membership refute, and the epsilon of a Gaussian claim.

`report`, the defences and `strategies.dp_fedavg` import it. Start with `onerun` (canaries in one
training run) and `gdp` (epsilon and delta of Gaussian noise).
"""
