"""What the columns of a list of images are: by their usual names, and the words of a side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedmia.data.labels import CLASS_NAMES
from fedmia.settings.values import escape_name

# Role of a column -> what it is usually called, in English and German, as of `as_key`.
NAMES: Mapping[str, tuple[str, ...]] = {
    "image": (
        "path", "file", "filename", "filepath", "image", "imagefile", "imagepath", "img", "datei",
        "dateiname", "dateipfad", "pfad", "bild", "bilddatei", "bildpfad",
    ),
    "label": (
        *(name.replace("_", "") for name in CLASS_NAMES), "diagnosis", "diagnose", "klasse",
        "kategorie", "befund",
    ),
    "side": (
        "split", "side", "set", "subset", "role", "fold", "member", "members", "ismember",
        "membership", "trained", "intraining", "istrain", "rolle", "seite", "teil", "teilmenge",
    ),
    "subject": (
        "patient", "patientid", "patientnr", "subject", "subjectid", "person", "personid",
        "customer", "customerid", "case", "caseid", "proband", "fall", "kunde",
    ),
    "owner": (
        "client", "clientid", "hospital", "hospitalid", "site", "siteid", "owner", "ownerid",
        "center", "centre", "institution", "klinik", "klinikum", "krankenhaus", "standort",
        "zentrum",
    ),
    "group": (),  # a device, a sex: which of them is asked about, no name tells
    "first": ("first", "firstround", "round", "entered", "runde", "ersterunde"),
}  # fmt: skip
# Side -> words for it, as of `as_key`.
WORDS: Mapping[str, tuple[str, ...]] = {
    "members": ("train", "training", "trained", "member", "members", "in"),
    "nonmembers": (
        "test", "testing", "val", "valid", "validation", "dev", "eval", "evaluation", "holdout",
        "heldout", "nonmember", "nonmembers", "out",
    ),
}  # fmt: skip
# Of a column that asks `member?`. Under another name, 0, 1, 2 may be train, val and test.
ANSWERS: Mapping[str, tuple[str, ...]] = {
    "members": ("1", "10", "true", "yes", "ja"),  # 1.0 too
    "nonmembers": ("0", "00", "false", "no", "nein"),
}
QUESTIONS = (
    "member", "members", "ismember", "membership", "trained", "intraining", "istrain"
)  # fmt: skip


def as_key(text: str) -> str:
    """A name as it compares with others: its letters and digits, without case.

    Args:
        text: `Patient ID`, `patient_id`.

    Returns:
        `patientid`.
    """
    return "".join(c for c in escape_name(text).casefold() if c.isalnum())


def find_columns(header: Sequence[str], role: str) -> list[str]:
    """The columns that are called like a role.

    Args:
        header: names of the columns.
        role: a key of `NAMES`.

    Returns:
        Their names; several: nobody can tell which of them is meant.
    """
    return [name for name in header if as_key(name) in NAMES[role]]


def choose_column(header: Sequence[str], name: str) -> str | None:
    """The column that a user names, by its letters and digits where none has its very name.

    Args:
        header: names of the columns.
        name: as the user wrote it.

    Returns:
        Its name; None: there is none, or several are called so.
    """
    if (exact := escape_name(name)) in header:
        return exact
    alike = [one for one in header if as_key(one) == as_key(name)]
    return alike[0] if len(alike) == 1 else None


def sides_of(
    column: str, values: Sequence[str], user_values: Mapping[str, Sequence[str] | None]
) -> dict[str, str]:
    """The side that each value of a column means.

    Args:
        column: its name, which says whether 1 and 0 are answers.
        values: the distinct ones.
        user_values: side -> the values that a user says for it; None: the words of a side mean it.

    Returns:
        Value -> `members`, `nonmembers`; empty where the user names the values of both sides, and
        not this one. A value that nobody knows is missing.
    """
    sides = dict[str, str]()
    questions = as_key(column) in QUESTIONS
    both = all(one is not None for one in user_values.values())
    for value in values:
        key, word = as_key(value), value.casefold()
        explicit = [
            side
            for side, own in user_values.items()
            if own is not None and word in (escape_name(one).casefold() for one in own)
        ]
        usual = [
            side
            for side, own in user_values.items()
            if own is None and key in (*WORDS[side], *(ANSWERS[side] if questions else ()))
        ]
        if explicit or usual or both:
            sides[value] = [*explicit, *usual, ""][0]
    return sides
