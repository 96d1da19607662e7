"""The name of `strategies.failure_policy` before 0.2, for code from outside."""

from strategies.failure_policy import Adversary as Against
from strategies.failure_policy import FailurePolicy as Crew
from strategies.failure_policy import FederationError

__all__ = ["Against", "Crew", "FederationError"]
