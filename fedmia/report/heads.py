"""What the columns of the tables say: the `title` text of each head, and the anchors of a page."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

TITLES = {
    "attack": "A method that guesses whether an image was used for training",
    "AUC": "How often the attack ranks a random member over a random non-member; 0.5: guessing",
    "AUC, 95 %": "AUC with the interval that contains the true value in 95 of 100 cases",
    "95 %": "Interval that contains the true value in 95 of 100 cases",
    "simultaneous": "Wider interval: all of this kind are right at once with 95 %",
    "data set, p": "Chance of so high a score without training on the set, corrected for all tests",
    "at its threshold": "Decisions at the score over which the attack says member",
    "TPR at an FPR of": "Share of members found at this share of false alarms",
    "n": "Number of scored images",
    "control": "The same attack where nothing, or less, can leak",
    "difference of AUCs": "AUC of the attack, minus AUC of its control",
    "difference": "Mean score of the set's images, minus that of non-members of their classes",
    "in words": "What the simultaneous interval says",
    "score of a set": "How a set of images gets one score",
    "control on the same sets": "AUC of the control on these sets, and the attack's lead over it",
    "sets": "Number of sets of images",
    "client": "Number of the client",
    "clients": "Number of clients, and whether they defend themselves",
    "p-value": "Chance of so high a score if the set was not trained on",
    "p-value, Holm": "The p-value, corrected for all clients",
    "p-value, untrained": "The p-value of the same test on an encoder that was not trained",
    "images": "Number of images",
    "result": "A control whose interval excludes 0.5 has failed",
    "probe": "A simple classifier on the encoder's outputs: a measure of its use",
    "accuracy, 95 %": "Share of test images classified right, with its 95 % interval",
    "untrained encoder": "Accuracy of the same probe on the encoder before training",
    "accuracy": "Share of right decisions, members and non-members weighted equally",
    "role": "What the client does: honest, or an attacker's role",
    "defence": "What the client does against leakage, and what that guarantees",
    "scored members": "Images of the client on which the attack was scored",
    "null: non-members posing as its members": "The AUC where nothing can leak: mean, 95 % range",
    "null: posing non-members": "The AUC where nothing can leak: mean and range of 95 %",
    "why it is listed": "Why this client is among those shown",
    "kNN for their classes": "Accuracy of a nearest-neighbour probe on the classes of the clients",
    "round": "Round of the federation; * after a crafted update",
    "phase": "Whether the round was under attack",
    "loss": "Mean training loss of the honest clients",
    "kNN": "Accuracy of a nearest-neighbour probe of the encoder",
    "AUC by attack": "AUC of each attack on the model of this round",
    "query budget": "Number of images that the attacker may have embedded",
    "known members": "Number of members that the attacker knows (and as many non-members)",
    "queries": "Number of images that the attacker had embedded",
    "models": "Number of trained models, one a seed",
    "verdicts": "How many runs have which verdict",
    "best attack": "The attack with the largest mean AUC",
    "mean AUC": "Mean over models",
    "epsilon at most": "Guaranteed limit of leakage; smaller is stronger, over 20 means little",
    "least": "Smallest value of the models",
    "greatest": "Largest value of the models",
    "chosen": "Options that the attack chose for itself, and on how many models",
    "Pareto front": "Whether no other point leaks less and is of more use",
    "run": "Point of the study, attack and seed",
    "reason": "Why there is no result",
    "TPR at 1 % FPR": "Share of members found where 1 of 100 non-members is taken for a member",
    "by seed": "The value of each model, one a seed",
    "epsilon": "Guaranteed limit of leakage; smaller is stronger, over 20 means little",
    "from": "The first of the two that are compared",
    "to": "The second of the two that are compared",
    "of": "What was measured",
    "noise": "Law of the noise",
    "scale": "Size of the noise",
    "point": "One combination of the options that vary",
    "where": "What both points have in common",
    "utility": "How useful the released head is: accuracy of its answers",
    "utility loss": "Utility lost to the noise",
    "mean difference of AUCs": "Mean over models of the attack's AUC minus that of its control",
    "mean difference": "Mean over models of the first minus the second, at equal seeds",
    "failed": "Number of attacks that could not be scored",
    "members": "Number of scored members",
    "non-members": "Number of scored non-members",
    "test images": "Number of images on which the probe was tested",
    "p": "Chance of so large a difference if there were none",
    "p, Holm": "The p-value, corrected for all comparisons of the table",
    "untrained kNN": "kNN accuracy of the encoder before training",
    "linear probe": "Accuracy of a linear classifier on the encoder's outputs",
    "weighted kNN": "Accuracy of a nearest-neighbour probe, near images counted more",
    "mean AUC of defended clients": "AUC on the images of clients that defend themselves",
    "mean AUC of undefended clients": "AUC on the images of clients that do not",
    "kNN after the attack": "kNN accuracy of the last model, after the crafted updates",
    "encoder": "The encoder that was audited",
    "images a set": "Number of images of each set",
    "measure": "AUC, or TPR at a false-positive rate",
    "option": "The option in which the two points differ",
    "defense": "What the clients do against leakage",
    "strategy": "How the server aggregates the clients' updates",
    "partition": "How images are dealt to clients",
    "model": "Network that is trained",
    "ssl": "Self-supervised method",
    "strength": "How strong the defence is, in its own unit",
}


def title_of(head: str) -> str:
    """What a column of that head says, or nothing.

    Args:
        head: of the column.

    Returns:
        The text of its `title`.
    """
    if head.endswith(" control"):
        return f"AUC of the same attack under the {head.removesuffix(' control')} control"
    if head.startswith("after the attack"):
        return "Accuracy of the last model, after the crafted updates"
    if re.fullmatch(r"\w+(\.[\w-]+)+", head):
        return "An option of the runs, by its path in the settings"
    plain = head.removesuffix(", 95 %")
    first, minus, other = plain.partition("minus ")
    if minus and plain not in TITLES:
        what = f"{first.strip() or 'The value'} less that of {other}"
        return f"{what}: mean over models at equal seeds, with its 95 % interval"
    return TITLES.get(head) or TITLES.get(plain, "")


def code(text: str) -> Markup:
    """Escaped text in which what stands between backticks is code; no flag breaks at a hyphen."""

    def unbroken(command: re.Match[str]) -> str:
        whole = (f'<span style="white-space: nowrap">{w}</span>' for w in command[1].split())
        return f"<code>{' '.join(whole)}</code>"

    return Markup(re.sub(r"`([^`]*)`", unbroken, str(escape(text))))


def anchor(title: str) -> str:
    """The id of a section: its title in small letters, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def contents(page: str) -> Markup:
    """A list of links to the sections of a page."""
    sections = re.findall(r'<section id="([^"]*)">\s*<h2>(.*?)</h2>', str(page))
    items = [f'<li><a href="#{escape(name)}">{title}</a></li>' for name, title in sections]
    return Markup(f'<nav aria-label="Contents"><ul>{"".join(items)}</ul></nav>')
