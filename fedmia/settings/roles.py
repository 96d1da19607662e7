"""What each attacker's role permits: the one place that says which attacks may run under it."""

from __future__ import annotations

from typing import Any

from fedmia.attacks.base import ActiveAttack
from fedmia.threat import Threat

ROLES = ("none", "passive", "active", "server")


def held(attacker: str) -> Threat:
    """The threat that a run with this attacker grants: an outsider's, a client's or the server's
    view. The server is honest but curious: it aggregates as it should, and keeps what it is sent.
    """
    vantage = {"none": "outsider", "server": "server"}.get(attacker, "client")
    return Threat("white_box", vantage)


def client_role(attacker: str) -> bool:
    """Whether the last clients take the attacker's role: neither an outsider nor the server is
    one of them."""
    return attacker in ("passive", "active")


def refusal(attack: type[Any], attacker: str, shadows: bool | None = None) -> str | None:
    """Why a run with this attacker cannot hold the attack class, or None if it can.

    Args:
        shadows: whether it asks for shadows with its options; None: with its default ones.
    """
    if issubclass(attack, ActiveAttack) and attacker != "active":
        return "needs --attacker active: it uploads crafted updates"
    if attack.uses_shadows if shadows is None else shadows:
        return "needs shadow encoders: python -m fedmia.audit --encoder RUN trains them"
    needs = attack.needs
    if held(attacker).covers(needs):
        return None
    if needs.vantage == "client":
        return "needs --attacker passive, active or server: it uses what a client sees"
    return "needs --attacker server: it uses each client's own update"
