"""What a client does in a round: the roles `honest`, `passive` and `active`, one a file.

`fedmia.federation` and `fedmia.flower` import `clients.app`. Start with `client_round.py`, one
client in one round; `client_setup.py` holds what all clients of a run share.
"""
