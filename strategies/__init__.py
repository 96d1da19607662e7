"""Aggregation strategies on Flower's message API, one a file.

`fedmia.federation` imports them through the registry. Start with `base.py`: its
`FederatedStrategy.rounds` leads from the cohort to the aggregate. `fedavg.py` is the simplest one.
"""
