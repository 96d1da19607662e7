"""Checks for plugins of your own: `check_attack(MyAttack)` raises AssertionError with a sentence.

Each takes a class or an instance, makes its own tiny material and needs no test runner.
"""

from fedmia.testing.attack import check_attack
from fedmia.testing.defense import check_defense
from fedmia.testing.observer import check_observer
from fedmia.testing.ssl import check_ssl
from fedmia.testing.strategy import check_strategy

__all__ = ["check_attack", "check_defense", "check_observer", "check_ssl", "check_strategy"]
