"""The verdict in words that need no statistics; its exact form is `fedmia.report.verdict`'s."""

from __future__ import annotations

from fedmia.records.client_rows import known_auc, rows_with_auc
from fedmia.records.rows import Report
from fedmia.report.lowerbounds import SHOUT
from fedmia.report.verdict import (
    LEAKS,
    NO_VERDICT,
    UNCONTROLLED,
    detecting,
    failed_control,
    strongest_leak,
)

REFUTED = (
    f"{SHOUT}: the images show more leakage than the guarantee of a client or of the server allows."
)
USELESS = "The model gives nearly the same output for every image"
POOLED = "The server had seen all private images before, in pre-training."


def plain_verdict(report: Report) -> str:
    """What was found, by counts in place of an AUC and its intervals.

    An AUC is the share of pairs of a member and a non-member in which the attack gives the member
    the higher score, so it reads as a count of such pairs.

    Args:
        report: what `fedmia.report.build.build_report` returned, or `report.json` of a run.

    Returns:
        One to five sentences.
    """
    code = report["verdict_code"]
    if code == NO_VERDICT:
        return "The run ended before its first round was finished, so there is nothing to judge."
    sentences = [REFUTED] if is_refuted(report) else []
    sentences.append(_finding(report, code))
    health = report.get("health")
    if health and health["collapsed"] and code != "collapsed":
        sentences.append(f"{USELESS}, so it is of no use.")
    if (report["config"].get("pretrain") or {}).get("mode") == "pooled":
        sentences.append(POOLED)
    if (last := report.get("interrupted")) is not None:
        sentences.append(f"The run ended early, after round {last}.")
    return " ".join(filter(None, sentences))


def is_refuted(report: Report) -> bool:
    """Whether the run contradicts a guarantee that a defence claims."""
    return report["verdict"].startswith(SHOUT)


def count_pairs(auc: float) -> str:
    """`75 times of 100; guessing: 50`; of 1,000 where a count of 100 would hide the difference.

    Args:
        auc: in [0, 1].

    Returns:
        The count, beside that of a guess.
    """
    whole = 1000 if abs(auc - 0.5) < 0.05 or not 0.01 <= auc <= 0.99 else 100
    return f"{auc * whole:,.0f} times of {whole:,}; guessing: {whole // 2}"


def _finding(report: Report, code: str) -> str:
    """What the verdict's code says of this run."""
    scored, controls = rows_with_auc(report["attacks"]), report["controls"]
    pixels = controls["pixels"]
    doubt = f" But {UNCONTROLLED}." * (code == LEAKS[1])
    if code in LEAKS and (strongest := strongest_leak(scored)) is not None:
        row, auc = strongest
        server = row["threat"]["vantage"] == "server"
        who = "The clients' updates leak" if server else "The model leaks"
        when = ", under attack" if row["under_attack"] else ""
        return (
            f"{who}{when}: between a member and a non-member, the attack {row['name']} picks the "
            f"member {count_pairs(auc.value)}.{doubt}"
        )
    if code in LEAKS and (sets := detecting(report["dataset_inference"])) is not None:
        return (
            f"The model leaks: the attack {sets['attack']} tells of a whole set of images that it "
            f"was used for training.{doubt}"
        )
    if code in LEAKS:  # by a refuted guarantee alone, which is said before
        return ""
    if code == "shift" and pixels is not None and (alone := known_auc(pixels)) is not None:
        return (
            "Nothing can be said about a leak, since the two sets of images differ by themselves: "
            "a classifier that sees no model tells a member from a non-member "
            f"{count_pairs(max(alone.value, 1 - alone.value))}."
        )
    if code == "control-failed" and (failed := failed_control(controls)) is not None:
        name, row, auc = failed
        return (
            f"Nothing can be said about a leak: where nothing can leak (control {name}), "
            f"{row['name']} still tells a member from a non-member "
            f"{count_pairs(max(auc.value, 1 - auc.value))}."
        )
    if code == "collapsed":
        return f"{USELESS}, so the attacks say nothing about its training."
    if not scored:
        return "No attack was scored, so nothing can be said about a leak."
    row, auc = max(scored, key=lambda one: one[1].value)
    sentence = (
        f"No leak was shown: between a member and a non-member, the best attack, {row['name']}, "
        f"picks the member {count_pairs(auc.value)}."
    )
    if auc.together[1] < 0.5:
        return f"{sentence} It picks the non-member more often than a guess would."
    if auc.together[0] > 0.5:
        return f"{sentence} Its control, where nothing leaks, may do as well."
    return f"{sentence} This may be chance."
