"""Who attacks, and which attacks that lets run: what the attacker's role says of itself, asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedmia.attacks.base import ActiveAttack
from fedmia.options import registry
from fedmia.options.errors import InputError, opt
from fedmia.threat import Threat

# The attackers that are no client. The server is honest but curious: it aggregates as it should,
# and keeps what it is sent.
OUTSIDER, SERVER = "none", "server"
APART: Mapping[str, Threat] = {
    OUTSIDER: Threat("white_box", "outsider"),
    SERVER: Threat("white_box", "server"),
}


class Attackers(Sequence[str]):
    """Names that `--attacker` takes; `package.module:Class` is one too. Read when asked."""

    def __getitem__(self, at: Any) -> Any:
        found = [n for n in registry.names("role") if registry.load("role", n).sees]
        return [OUTSIDER, *sorted(found, key=may_craft), SERVER][at]

    def __len__(self) -> int:
        return len(self[:])

    def __contains__(self, name: object) -> bool:
        return ":" in str(name) or name in self[:]


ATTACKERS = Attackers()


def is_client(attacker: str) -> bool:
    """Whether the last clients take the attacker's role."""
    return attacker not in APART


def granted_threat(attacker: str, sums: bool = False) -> Threat:
    """The threat that a run with this attacker grants.

    Args:
        sums: whether the server sees sums of updates alone: then it knows what a client knows that
            takes part in every round, the models.

    Raises:
        InputError: no such role, or one that attacks nothing.
    """
    if attacker == SERVER and sums:
        return Threat("white_box", "client")
    threat = registry.load("role", attacker).sees if is_client(attacker) else APART[attacker]
    if threat is None:
        raise InputError(f"role '{attacker}' attacks nothing")
    return threat


def may_craft(attacker: str) -> bool:
    """Whether its clients may upload what an active attack crafts."""
    return is_client(attacker) and bool(registry.load("role", attacker).crafts)


def refusal(
    attack: type[Any], attacker: str, shadows: bool | None = None, sums: bool = False
) -> str | None:
    """Why a run with this attacker cannot hold the attack class, or None if it can.

    Args:
        sums: whether the server sees sums of updates alone.
        shadows: whether it asks for shadows with its options; None: with its default ones.
    """
    if issubclass(attack, ActiveAttack) and not may_craft(attacker):
        return f"needs {_any(map(may_craft, ATTACKERS))}: it uploads crafted updates"
    if attack.uses_shadows if shadows is None else shadows:
        return "needs shadow encoders: python -m fedmia.audit --encoder RUN trains them"
    needs = attack.needs
    if granted_threat(attacker, sums).covers(needs):
        return None
    if sums and needs.vantage == "server":
        return (
            "reads each client's own update, of which "
            f"{opt('federation.secure_aggregation', 'true')} shows the sum alone"
        )
    what = "what a client sees" if needs.vantage == "client" else "each client's own update"
    return f"needs {_any(granted_threat(a).covers(needs) for a in ATTACKERS)}: it uses {what}"


def _any(fit: Any) -> str:
    """The attackers that `fit`, as in "--attacker passive, active or server"."""
    *first, last = [name for name, fits in zip(ATTACKERS, fit, strict=True) if fits]
    return opt("attacker", f"{', '.join(first)} or {last}" if first else last)
