"""Terms of reports, each with its meaning: docs/concepts/glossary.md says the same, word for word.

A page lists those that occur on it, and links to them where they stand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Name, and other names of the same -> its meaning, with code between backticks.
TERMS: Mapping[str, str] = {
    "member, non-member": "an image that was trained on, in a federation by an honest client; an "
    "image of the same source that nobody trained on.",
    "known images": "members and non-members whose membership the attacker knows. Attacks learn "
    "from them and choose their thresholds on them. They are never scored.",
    "scored images": "all other members and non-members; every AUC is computed on them.",
    "n": "the number of scored images: 180+700 are 180 members and 700 non-members, `of 20+60` the "
    "subjects that they belong to.",
    "subject": "whose images these are, such as a patient or a customer (`--groups`). Subjects are "
    "drawn and tested whole.",
    "Dirichlet, alpha": "a partition that divides each class among the clients in random shares, "
    "and its parameter: with a small one each client holds few classes, with a large one all are "
    "alike.",
    "class mix": "the shares of the classes in a client's images.",
    "outsider, vantage": "where the attacker stands: `outsider` (it has the released model), "
    "`client` (it has the models of the rounds), `server` (it also has every update).",
    "black box, white box": "the attacker only embeds images; the attacker reads the weights.",
    "shadow encoder, shadow model": "an encoder that the attacker trains on images of its own, to "
    "learn how members differ.",
    "ascent, climb": "the attacker changes the weights so that the loss of its target images "
    "rises. In a federation it uploads them (a crafted update); `ascent-static` takes one small "
    "step on the finished model.",
    "ascent-level, ascent-static-level": "a reading of an ascent: the loss itself, in place of how "
    "much it rises.",
    "regime": "`overfit` if the AUC of `similarity` exceeds 0.85, otherwise `weak`.",
    "untrained": "a control: the same attack on the encoder before its training.",
    "placebo": "a control: the same attack on a second federation, which trained on other images.",
    "last-model, earlier-model": "controls of `--nonmembers later`: the same attack on a model "
    "that was trained on both sides, or on neither.",
    "paired control": "the same attack without the step that is tested; one whose name ends in "
    "`-zero` saw the attacked rounds without the attacker's active step.",
    "pixels": "a control: a classifier that sees the images alone, without the model.",
    "the null, where nothing can leak": "the value that an attack reaches where only class or "
    "chance can help it, for example on posers.",
    "poser, posing set": "non-members that stand in for a client's members, with the same classes.",
    "AUC": "the share of pairs of a member and a non-member in which the attack scores the member "
    "higher: 0.5 is guessing, 1 is certain.",
    "ROC": "the TPR at each FPR, as a curve.",
    "TPR, FPR": "the share of members that an attack names, and of non-members that it names by "
    "mistake. At 1 % FPR that is one non-member in a hundred; guessing finds 1 % of the members.",
    "precision, recall": "of the images that an attack calls members, the share that are; of the "
    "members, the share that it calls so.",
    "oracle, best in hindsight": "the accuracy at the threshold that is best for the scored images,"
    " which no attacker knows.",
    "queries": "images that the attacker had the model embed, each augmented view counted.",
    "simultaneous interval, for all attacks together": "intervals that contain all true values "
    "together with 95 % confidence, so that you may pick the best row.",
    "95 % alone, single interval": "an interval that has 95 % confidence by itself, but not "
    "together with its neighbours.",
    "lower limit": "of an attack's AUC, one-sided, at 95 % for all attacks together. It decides "
    "the verdict.",
    "p-value": "the probability of so high a score if there is nothing to find.",
    "Holm, Bonferroni, corrected p": "corrections for several tests or intervals. They keep the "
    "probability of any false finding at 5 %.",
    "Clopper-Pearson, Wilson": "two standard ways to compute the limits of a share.",
    "kNN, linear probe": "simple classifiers on the encoder's outputs, by nearest neighbours and "
    "by a linear rule. Their accuracy says how useful the encoder is.",
    "suspicion": "how far a client's updates stand out from those of the other clients, as a "
    "standard normal value; over a threshold that honest federations did not reach it is an alarm.",
    "epsilon, delta": "the two numbers of differential privacy. A smaller epsilon promises more.",
    "unit": "what an epsilon protects: one image, or everything that one client holds.",
    "heuristic, standing": "what an epsilon rests on: `guaranteed`, `heuristic`, `empirical`, or "
    "`of the weights alone`.",
    "canary": "a made-up record that an auditor inserts to measure a lower bound of epsilon.",
}


def term_pattern(names: str) -> re.Pattern[str]:
    """What finds a term in a text, in the singular or the plural; a single letter only where it
    is all that the text says.

    Args:
        names: a key of `TERMS`.

    Returns:
        The pattern.
    """
    if len(names) == 1:
        return re.compile(rf"(?:^|(?<=\0))\s*{names}\s*(?=\0|$)")
    parts = [r"[\s_-]+".join(map(re.escape, name.split())) for name in names.split(", ")]
    either = [f"[{p[0].upper()}{p[0].lower()}]{p[1:]}" for p in parts]
    return re.compile(rf"(?<![\w-])(?:{'|'.join(either)})s?(?![\w-])")


def terms_in(texts: list[str]) -> dict[str, str]:
    """The terms that occur in texts.

    Args:
        texts: each a cell, a sentence or a paragraph.

    Returns:
        Names of each term -> its meaning, by the alphabet.
    """
    whole = "\0".join(texts)  # a term is in one text alone
    return {k: TERMS[k] for k in sorted(TERMS, key=str.lower) if term_pattern(k).search(whole)}


def term_lines(names: list[str]) -> list[str]:
    """Terms among the names in tables, below which other signs are explained already.

    Args:
        names: of columns and rows.

    Returns:
        A line a term.
    """
    terms = terms_in([name for name in names if name != "n"])
    return [f"{term}: {text.replace('`', '')}" for term, text in terms.items()]
