"""Notes on how the scores of a report came about, and what they do not say."""

from __future__ import annotations

from fedmia.settings.errors import opt


def plugin(text: str) -> str:
    return text


# -- intervals and thresholds -------------------------------------------------------------------


def one_model(trained: bool) -> str:
    """What the intervals hold for.

    Args:
        trained: whether the report's own run trained the model, so that others can be trained.
    """
    hold = "All intervals hold for the one model that was trained"
    cover = "they cover the choice of images, not the variation between trainings"
    seeds = "; fedmia study --seeds 5 shows the spread between models" if trained else ""
    return f"{hold}: {cover}{seeds}."


def thresholds() -> str:
    """Which threshold each accuracy takes."""
    oracle = "takes the best threshold on the scored images, as in the paper: an upper bound"
    own = "takes the attack's own threshold: from the shadow models on which it was fitted"
    known = "else from the attacker's known images (threshold_source)"
    return f"oracle_accuracy {oracle}. accuracy {own}, {known}."


def no_known_members() -> str:
    return "The attacker knows non-members alone: none chooses a threshold."


# -- single attacks -----------------------------------------------------------------------------


def one_side_unscored(attack: str, control: str | None) -> str:
    return f"{_under(attack, control)}: no scores on one side, so it says nothing."


def one_score_for_all(attack: str, control: str | None, images: int, of: int) -> str:
    """An attack without an answer; where it has one for a few images, its AUC is of these.

    Args:
        attack: its name.
        control: of which it is one; None: of none.
        images: to which it gave one score.
        of: images scored.

    Returns:
        A sentence.
    """
    who, rest = _under(attack, control), of - images
    if not rest:
        return f"{who} gave every image the same score: no answer, and an AUC that means nothing."
    return f"{who} gave {images:,} of {of:,} images the same score: its AUC is of {rest} alone."


def _under(attack: str, control: str | None) -> str:
    return attack if control is None else f"{attack} ({control} control)"


def no_exposed(others: int, least: int, subjects: bool) -> str:
    unit = "subjects of non-members" if subjects else "non-members"
    return f"No list says who is exposed: {others} {unit} are scored, at least {least} are needed."


def images_shown() -> str:
    files = "report.html, report.json, exposed.csv and figures/exposed"
    return f"Images and names of their files are in {files}: keep these like the images themselves."


def epochs_cut(attack: str, epochs: str) -> str:
    return f"{attack} trained {epochs} epochs of its recipe; steps 0 trains all."


def few_known(attack: str, budget: int, known: int) -> str:
    return f"{attack}: the query budget of {budget} leaves {known} known images a side."


def ascent_elsewhere() -> str:
    """What an attack that climbs found elsewhere."""
    return (
        "What an ascent finds beyond the plain loss depends on the encoder: see "
        "docs/findings/ascent.md."
    )


def clients_compared(attack: str, under_attack: bool, own_nonmembers: bool) -> str:
    """By which attack clients are compared, and with whom.

    Args:
        attack: its name.
        under_attack: whether the model was under attack.
        own_nonmembers: whether each client owns non-members of its own.

    Returns:
        Two sentences.
    """
    mix = "non-members weighted to the client's class mix (Kish's effective n)"
    against = "the non-members that each client owns" if own_nonmembers else mix
    by = f"{attack}, scored on the model under attack" if under_attack else attack
    return (
        f"Clients are compared by {by}, against {against}. null_auc is of the null: non-members "
        "that pose as the client's members."
    )


# -- the audit itself ---------------------------------------------------------------------------


def interrupted() -> str:
    missing = "the attacks, controls and probes that are missing did not run"
    return f"The audit was interrupted: {missing}."


def machine_busy(threads: int) -> str:
    used = f"so the audit used {threads} thread{'s' * (threads > 1)}"
    repeats = f"{opt('machine.threads', threads)} repeats these numbers"
    return f"The machine was busy, {used}; another number may change the last digits, {repeats}."
