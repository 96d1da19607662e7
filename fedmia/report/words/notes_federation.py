"""Notes on a federation: its clients, its training, what was recorded of it, who attacked it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedmia.recording.branches import EARLIER
from fedmia.settings.errors import opt

MOST_FAULTS = 8  # updates left out that a note names


# -- its clients --------------------------------------------------------------------------------


def clients_by_value(column: str, values: Sequence[str], clients: int) -> str:
    clauses = ", ".join(f"{client} is {value}" for client, value in enumerate(values))
    more = f" and {clients - len(values)} more" if clients > len(values) else ""
    return f"Clients by {column}: {clauses}{more}."


def client_failed(client: int, reason: str, round: int, branch: str, action: str) -> str:
    again, gone = "; it got its order again.", " and was dropped: its images are in no statistic."
    became = {"retried": again, "dropped": gone}[action]
    return f"Client {client} {reason} in round {round} of {branch}{became}"


def updates_left_out(faults: Sequence[tuple[int, int, str]], updates: int) -> str:
    """Which clients' updates no attack reads.

    Args:
        faults: client, round and reason of each.
        updates: that were recorded.

    Returns:
        One sentence, which names at most `MOST_FAULTS`.
    """
    first, more = faults[:MOST_FAULTS], len(faults) - MOST_FAULTS
    which = "; ".join(f"client {client} in round {turn} {reason}" for client, turn, reason in first)
    which += f"; {more} more (faults in report.json)" if more > 0 else ""
    return f"Attacks on updates leave out {len(faults)} of the {updates} updates: {which}."


# -- its training -------------------------------------------------------------------------------


def bank_cut(bank: str, length: int, half: int, images: int, own: str | None) -> str:
    why = "" if own is None else f": a longer one would hold an image's own earlier {own}"
    return f"{bank} cut from {length} to {half}, half of {images} images{why}"


def queue_long(keys: int, images: int, met: float) -> str:
    lasts = "it outlasts an epoch: " if images < keys else ""
    own = f"; {lasts}in {met:.0%} of the steps an image meets an earlier key of its own"
    return f"queue of {keys} keys, as asked, for {images} images{own * bool(met)}"


def more_of_this_kind(notes: int) -> str:
    return f"and {notes} more notes of this kind, of clients of other sizes"


def clients_in_passes(clients: int) -> str:
    alone = "what each learns is equal to training alone but for rounding"
    return f"Up to {clients} honest clients trained in one pass: {alone}."


def local_batch_norm() -> str:
    statistics = "the running statistics of the first model, which no client ever used"
    return f"Batch norm is local: the global model that is scored has {statistics}."


# -- what was recorded of it --------------------------------------------------------------------


def last_model(round: int, end: int) -> str:
    last = f"The last model that was recorded is that of round {round}"
    lost = f"the aggregate of round {end} went through no message"
    return f"{last}: {lost} (grid.final(arrays) records it)." if round < end else f"{last}."


def clients_by_contact() -> str:
    order = "Clients are numbered in the order in which the server first sent to their nodes"
    roster = "no roster says which partition each is (ClientApp(mods=[fedmia.flower.roster]))"
    return f"{order}: {roster}."


def rounds_recorded(cohorts: Sequence[int], clients: int) -> str:
    least, most = min(cohorts), max(cohorts)
    each = f"{least}{f'-{most}' * (most > least)} of {clients} clients each"
    return f"Recorded: {len(cohorts)} rounds with {each}."


def trained_on_later(
    round: int, members: int, later: int, begins: int, chosen: bool, by: str, control: str | None,
    at: int,
) -> str:  # fmt: skip
    """What non-members that were trained on later take for granted, and what controls them.

    Args:
        round: whose model is under audit.
        members: images first trained on until then, as far as they are members of the audit.
        later: images that were trained on only after it.
        begins: the first round that trained on later ones.
        chosen: whether nobody named the round.
        by: `file`, `list` or `clients`, which says when each image was trained on.
        control: branch of the model to which both sides are alike; None: there is none.
        at: round of that model.

    Returns:
        Sentences.
    """
    says = {"clients": "the first round of its client", "list": "their list"}.get(
        by, opt("federation.order")
    )
    why = f", which leaves the most balanced sides ({opt('federation.round')} names another)"
    rest = "No kept model was trained on neither side, or on all of both, so none is a control."
    since = "trained on until then"
    if control == EARLIER:
        since = f"first trained on until then, after round {at}"
        rest = (
            f"So the model of round {at} is a control: it was trained on neither side, and "
            "an attack that tells them apart there reads a shift."
        )
    elif control is not None:
        rest = (
            f"So the last model, of round {at}, is a control: both sides are members of "
            "it, and a leak must lie over what the same attack finds there. An AUC over 0.5 there "
            "comes from a shift, or from more rounds of training on the earlier side; where the "
            "later images are fresher it lies under 0.5, and hides a shift as large."
        )
    return (
        f"Non-members are images that were trained on only after round {round}{why * chosen}: "
        f"{members} images were {since}, {later} later, from round {begins} on, "
        f"as {says} says. That holds only if nothing of the later ones was used before, as in "
        "pre-training or in rounds that are not recorded. The sides differ in date"
        f"{', and are of different clients' * (by == 'clients')}. {rest}"
    )


def models_by_file(files: Mapping[int, str]) -> str:
    names = [f"{round} {file}" for round, file in files.items()]
    listed = names if len(names) < 8 else [*names[:3], "..", *names[-3:]]
    return f"Models by the last number in each file's name: {', '.join(listed)}."


def node_scored_itself() -> str:
    return "The node scored its own images; its scores alone made this report."


def scores_stay(why: str) -> str:
    return f"No attack was scored: {why}."


# -- who attacked it ----------------------------------------------------------------------------


def client_attacked(client: int, targets: int, rounds: Sequence[int], steps: int, lr: float) -> str:
    """Who climbed which images, and when.

    Args:
        client: number of the attacker.
        targets: images that it climbed.
        rounds: in which it acted.
        steps: passes over the images in a round.
        lr: learning rate of a step.

    Returns:
        One sentence.
    """
    climbed = f"it climbed {targets} images in rounds {', '.join(map(str, rounds))}"
    later = "every attack on models of these rounds and later ones is on a federation under attack"
    return f"Client {client} attacked: {climbed} ({steps} passes, learning rate {lr:g}); {later}."


def climb_to_one_loss(correlation: float) -> str:
    backwards = f"so its rise is the loss before, backwards (correlation {correlation:.2f})"
    carried = f"The climb carried all images to nearly one loss, {backwards}"
    return f"{carried}: fewer steps or a lower learning rate help."


def several_attacked(clients: int) -> str:
    return f"{clients} clients attacked; the notes of one are read."


def twin_left_out(rounds: Sequence[int], attacked: Sequence[int]) -> str:
    return f"The twin without ascent is left out: it has rounds {rounds}, not {attacked}."


def twin_not_paired() -> str:
    differs = "what differs between two runs counts in the difference"
    twin = "The twin without ascent is another run of the app, not paired"
    return f"{twin}: {differs}, and its interval is of the images alone."
