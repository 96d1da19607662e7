"""The attacker's roles: which threat model a role grants, and which attacks it permits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedmia.attacks.base import ActiveAttack
from fedmia.settings import registry
from fedmia.settings.errors import InputError, opt
from fedmia.settings.vantages import OF_SUMS, VANTAGES
from fedmia.threat import Threat

# Attackers that are no client. The server is honest but curious: it aggregates as it should,
# and attacks what it receives.
APART: Mapping[str, Threat] = {
    one.attacker: Threat("white_box", name) for name, one in VANTAGES.items() if one.attacker
}
OUTSIDER, *SEES = APART


QUICK = "quick"  # value of `--attacks`


def is_quick(attack: type[Any]) -> bool:
    """Whether `--attacks quick` has an attack: it is cheap enough to be scored on every model of a
    run, trains no shadow encoders and takes no part in the rounds."""
    return attack.by_round and not attack.uses_shadows and not issubclass(attack, ActiveAttack)


def expand_lists(names: Sequence[str], lists: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The attacks that names stand for, in order, each once.

    Args:
        names: of attacks or of lists.
        lists: name of a list -> its attacks.

    Returns:
        Names of attacks.

    Raises:
        InputError: an unknown attack, or a name given twice.
    """
    expanded: list[str] = []
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"attack '{name}' is named twice")
        if name not in lists:
            registry.load("attack", name)
        expanded += [one for one in lists.get(name, (name,)) if one not in expanded]
    return tuple(expanded)


def check_attack_options(options: Iterable[str], names: Sequence[str]) -> None:
    """Refuse options of an attack that is not run.

    Args:
        options: names of the attacks that have options.
        names: of the attacks that run.

    Raises:
        InputError: naming the attack, and those that run.
    """
    for name in options:
        if name not in names:
            listed = ", ".join(names) or "none"
            raise InputError(f"options for attack '{name}', which is not run (run: {listed})")


class Attackers(Sequence[str]):
    """Names that `--attacker` takes, read off the plugins; `package.module:Class` is one too."""

    def __getitem__(self, at: Any) -> Any:
        roles = [n for n in registry.names("role") if registry.load("role", n).sees]
        return [OUTSIDER, *sorted(roles, key=may_craft), *SEES][at]

    def __len__(self) -> int:
        return len(self[:])

    def __contains__(self, name: object) -> bool:
        return ":" in str(name) or name in self[:]


ATTACKERS = Attackers()


def is_client(attacker: str) -> bool:
    """Whether the last clients take the attacker's role."""
    return attacker not in APART


def granted_threat(attacker: str, sums: bool = False) -> Threat:
    """The threat model that a run with this attacker grants.

    Args:
        attacker: name of the attacker's role.
        sums: whether the server sees only sums of updates, and so no client's own.

    Returns:
        The access and the vantage of the attacker.

    Raises:
        InputError: no such role, or one that attacks nothing.
    """
    threat: Threat | None = APART.get(attacker) or registry.load("role", attacker).sees
    if threat is None:
        raise InputError(f"role '{attacker}' attacks nothing")
    reads_updates = threat.row.keeps == "updates"
    return Threat("white_box", OF_SUMS) if sums and reads_updates else threat


def is_server(attacker: str) -> bool:
    """Whether the server itself attacks, whatever it sees."""
    return attacker in SEES


def may_craft(attacker: str) -> bool:
    """Whether its clients may upload what an active attack crafts."""
    return is_client(attacker) and bool(registry.load("role", attacker).crafts)


def refusal(
    attack: type[Any], attacker: str, shadows: bool | None = None, sums: bool = False
) -> str | None:
    """Why a run with this attacker cannot run an attack.

    Args:
        attack: class of the attack.
        attacker: name of the attacker's role.
        shadows: whether the attack, under its options, asks for shadow encoders; None: as under its
            default options.
        sums: whether the server sees only sums of updates.

    Returns:
        The reason in words; None where the run can.
    """
    if issubclass(attack, ActiveAttack) and not may_craft(attacker):
        return f"needs {_list_attackers(map(may_craft, ATTACKERS))}: it uploads crafted updates"
    if attack.uses_shadows if shadows is None else shadows:
        return "needs shadow encoders: fedmia audit --encoder RUN trains them"
    needs = attack.needs
    if granted_threat(attacker, sums).covers(needs):
        return None
    if sums and needs.row.keeps == "updates":
        return (
            "reads each client's own update, of which "
            f"{opt('federation.secure_aggregation', 'true')} shows the sum alone"
        )
    attackers = _list_attackers(granted_threat(a).covers(needs) for a in ATTACKERS)
    return f"needs {attackers}: it uses {needs.row.uses}"


def _list_attackers(fit: Any) -> str:
    """List the attackers where `fit` is true: "--attacker passive, active or server"."""
    *first, last = [name for name, fits in zip(ATTACKERS, fit, strict=True) if fits]
    return opt("attacker", f"{', '.join(first)} or {last}" if first else last)
