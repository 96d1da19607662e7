"""Notes on what scores are compared with: controls, and shadows of the attacker's own."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.recording.branches import UNTRAINED
from fedmia.records.rows import BROKEN
from fedmia.settings.errors import opt

# -- controls -----------------------------------------------------------------------------------


def untrained_control(how: str) -> str:
    return f"The untrained control is {how}."


def no_untrained_control(why: str, pixels: bool) -> str:
    rest = "the classifier on pixels" if pixels else "nothing"
    return f"{why}; what remains as a control is {rest}."


def not_tried_untrained(attacks: Sequence[str], control: str) -> str:
    """Why attacks have no untrained control, and which control they have.

    Args:
        attacks: their names.
        control: `none`; of a run `placebo`, `unfinished`, or `missing` where it has no placebo.

    Returns:
        One sentence.
    """
    have = {
        "none": "they have no control",
        "placebo": "their control is the placebo",
        "unfinished": "the placebo was not finished",
        "missing": "no control: --federation.placebo true runs one, the placebo",
    }[control]
    why = "not tried untrained, as updates and changes between rounds come with training"
    return f"{', '.join(attacks)}: {why}; {have}."


def no_scores_beside(attack: str, piece: str, why: str) -> str:
    """That an attack has no scores beside those of the model under test.

    Args:
        attack: name of the attack.
        piece: part of the scoring, such as the untrained control.
        why: the reason; after `BROKEN`, where the attack raised an error.

    Returns:
        One clause, whose end is the reason.
    """
    what = "untrained control" if piece == UNTRAINED else f"scores of {piece}"
    raised = why.startswith(BROKEN)
    how = f", it {BROKEN.rstrip(': ')} there: {why.removeprefix(BROKEN)}" if raised else f": {why}"
    return f"{attack} has no {what}{how}"


# -- shadows ------------------------------------------------------------------------------------


def shadow_training(note: str) -> str:
    return f"Shadow encoders: {note}."


def shadows_undefended(defences: Sequence[str]) -> str:
    run = f"The run's clients trained under {' and '.join(defences)}, the shadow encoders did not"
    return f"{run}: {opt('shadow.defense', ','.join(defences))} trains them so too."


def updates_undefended(defences: Sequence[str]) -> str:
    sent = f"The run's clients sent their updates under {' and '.join(defences)}"
    federation = f"{opt('shadow.encoders', 'RUN')} takes a federation that does"
    return f"{sent}, and a shadow sends none: {federation}."


def shadow_federation(name: str, clients: int, rounds: int, defences: str) -> str:
    federation = f"a federation of {clients} clients over {rounds} rounds"
    return f"Shadow encoder {name}: {federation}, under {defences}."


def defences_differ(run: str, shadows: str) -> str:
    return f"The run was trained under {run}, the shadow encoders under {shadows}."
