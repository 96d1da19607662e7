"""The name of `clients.client_round` before 0.2, for code from outside."""

from clients.client_round import ClientRound as Desk

__all__ = ["Desk"]
