"""What each attacker's role permits: the one place that says which attacks may run under it."""

from __future__ import annotations

from typing import Any

from fedmia.attacks.base import ActiveAttack
from fedmia.threat import Threat

ROLES = ("none", "passive", "active")


def held(attacker: str) -> Threat:
    """The threat that a run with this attacker grants: an outsider's, or a client's view."""
    return Threat("white_box", "outsider" if attacker == "none" else "client")


def refusal(attack: type[Any], attacker: str) -> str | None:
    """Why a run with this attacker cannot hold the attack class, or None if it can."""
    if issubclass(attack, ActiveAttack) and attacker != "active":
        return "needs --attacker active: it uploads crafted updates"
    if attack.uses_shadows:
        return "needs shadow encoders: python -m fedmia.audit --encoder RUN trains them"
    needs = attack.needs
    if held(attacker).covers(needs):
        return None
    if needs.vantage == "client":
        return "needs --attacker passive or active: it uses what a client sees"
    return f"needs {needs.access} access as {needs.vantage}, which no --attacker grants"
