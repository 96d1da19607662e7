"""Whether an encoder was trained on a data set, in words: what the p-values say, and a control."""

from __future__ import annotations

from fedmia.records.client_rows import CLIENT, ClientInferenceRow, InferenceRow
from fedmia.records.rows import Report
from fedmia.report.judgement import SIGNIFICANCE, detected, is_clean
from fedmia.report.selection import FEW
from fedmia.report.words.numbers import format_p
from fedmia.statistics.one_subject import others_needed

CORRECTED = "corrected for all tests of this report"
UNCONTROLLED = "; no control tells training from a shift between the sides"
NO_CONTROL = "there is no control"


def statement(row: InferenceRow) -> str:
    """Whose data set was found, beside the false alarms of a control, and what could have been
    found; without its final stop."""
    result = _result(row)
    if row.may_differ:
        result = result.removesuffix(f"; {NO_CONTROL}")
    return result + out_of_reach(row) + UNCONTROLLED * row.may_differ


def uncontrolled(row: InferenceRow) -> str:
    """The statement where the verdict says next that there is no control."""
    return statement(row).removesuffix(UNCONTROLLED).replace(f"; {NO_CONTROL}", "")


def certainty(row: InferenceRow) -> str:
    """How sure a set was found, in place of its p-value, which the verdict has.

    Args:
        row: of an attack that found one.

    Returns:
        A sentence.
    """
    share = f"{100 * (row.p_value or 0.0):.2g} of 100"
    return f"Had no set been used, chance alone would name one in at most {share} such reports."


def beside_verdict(report: Report) -> list[str]:
    """What each attack on data sets says, where neither the verdict nor a box under it does."""
    boxes = f"{report.verdict} {report.sure}"
    return [
        f"{row.attack}: {statement(row)}."
        for row in report.dataset_inference
        if statement(row) not in boxes and f"By {row.attack}: {uncontrolled(row)}" not in boxes
    ]


def _result(row: InferenceRow) -> str:
    tested = [c for c in row.clients if c.p_value_holm is not None]
    known = [c.name or str(c.client) for c in detected(row)]
    kind = row.clients[0].whose if row.clients else CLIENT
    if row.void:
        return f"Control failed, so no {kind} is named: {_control(row)}"
    if row.n_tested == 1 and tested:
        return _of_one(row, tested[0], bool(known))
    more = f" and {row.n_detected - FEW:,} more" if row.n_detected > FEW else ""
    who = f": {', '.join(known[:FEW])}{more}" if known else ""
    return (
        f"The data sets of {row.n_detected} of {row.n_tested} {kind}s are "
        f"detected (p <= {SIGNIFICANCE}, corrected for all {kind}s){who}; the least p, "
        f"{CORRECTED}: {format_p(row.p_value)}; {_control(row)}"
    )


def _of_one(row: InferenceRow, one: ClientInferenceRow, trained: bool) -> str:
    """Of the only set that was tested: each number once."""
    finding = "The encoder was trained on" if trained else "No evidence of training on"
    finding += " the set"
    finding += f" of {one.name}" if one.name is not None else ""
    p, corrected = f"p = {format_p(one.p_value)}", format_p(row.p_value)
    if is_clean(one):
        more = "" if corrected in p else f", {CORRECTED} {corrected}"
        return f"{finding} ({p}{more}); {_control(row)}"
    null = format_p(one.p_value_untrained)
    untrained = "as well" if null in p else f"p = {null}"
    beside = f"; {_control(row)}" if row.posers.n else ""
    return f"{finding}: {p}, but on the untrained encoder {untrained}{beside}"


def _control(row: InferenceRow) -> str:
    """What the test says where nothing leaks: of posing sets, else on the untrained encoder."""
    posers = row.posers
    if posers.n:
        alarms = f"{posers.alarms['0.05']} of {posers.n}"
        return f"{alarms} posing sets of non-members have p <= 0.05"
    values = [p for c in row.clients if (p := c.p_value_untrained) is not None]
    if not values:
        return NO_CONTROL
    if (p := row.p_value_untrained) is None:
        return f"on the untrained encoder p = {format_p(values[0])}"
    return f"on the untrained encoder all sets together have p = {format_p(p)}"


def out_of_reach(row: InferenceRow) -> str:
    """That too few non-member subjects could establish no set, and how many could.

    One subject among n others has a p-value of 1 / (n + 1) at least.

    Args:
        row: with the p-values.

    Returns:
        Text that goes on after a statement, or nothing.
    """
    tests = row.family * row.n_tested
    others = row.n_nonmember_subjects
    if others is None or tests <= SIGNIFICANCE * (others + 1):
        return ""
    count = "1 test needs" if tests == 1 else f"{tests:,} tests need"
    ways = [
        "members of one subject" * (row.n_tested > 1),
        f"`--attacks {row.attack}` alone" * (row.family > 1),
    ]
    fewer = " and ".join(filter(None, ways))
    alone = f"; {fewer} would need {others_needed(1, SIGNIFICANCE)}" if fewer else ""
    return (
        f"; {others} non-member subjects are too few to establish any (p is at least "
        f"{format_p(1 / (others + 1))}): {count} {others_needed(tests, SIGNIFICANCE):,} of them"
        f"{alone}"
    )


def void_sentence(row: InferenceRow) -> str | None:
    """That a control failed, above the table of p-values; None where none did."""
    kind = row.clients[0].whose if row.clients else CLIENT
    return f"A control failed, so no {kind} is named." if row.void else None


def listed_sentence(row: InferenceRow) -> str | None:
    """That the table lists few of many sets; None where it lists all."""
    tested = len(row.clients) if row.n_clients is None else row.n_clients
    if tested <= FEW:
        return None
    kind = row.clients[0].whose
    least = f"The {FEW} {kind}s with the smallest p-values of {tested:,}"
    return f"{least}; all are in `table.csv`."


def posers_sentence(row: InferenceRow) -> str:
    """How many posing sets have small p-values."""
    posers = row.posers
    if not posers.n:
        return "There are no posing sets here."
    return (
        f"Of {posers.n} posing sets, {posers.alarms['0.05']} have p at most 0.05 and "
        f"{posers.alarms['0.01']} at most 0.01."
    )
