"""Which members stand out from non-members, and how many of a list of them may do so by chance.

A *false discovery* is a listed member whose score is exchangeable with those of the non-members: it
was listed, and nothing tells it apart. Sorted by falling scores, such members and the m non-members
come in a random order, whatever their distribution. So the numbers of such members before the 1st,
2nd, .. non-member follow one law, Polya's urn (Gazin, Blanchard and Roquain 2024, "Transductive
conformal inference with adaptive scores", AISTATS), and a bound on all of them at once is computed
from n and m alone. It holds for every list that begins at the top, so whoever reads a list may end
it where he likes.

The attack must have been chosen apart from these scores. Nothing here is the probability that an
image is a member.

Example:
    >>> conformal_p(np.array([3.0, 1.0]), np.array([2.0, 1.0, 0.0]))
    array([0.25, 0.75])
    >>> most_false(np.arange(30.0, 70.0), np.arange(60.0))[[0, 9, 19, 39]]
    array([ 1,  2,  8, 13])
"""

from __future__ import annotations

import numpy as np
import scipy  # its `stats`, a fifth of what a run imports, waits until it is used
from numpy.typing import NDArray

from fedmia.statistics.intervals import LEVEL, FloatArray, IntArray

FEWEST = 20  # non-members without which no list is given
LONGEST = 1000  # members that a list has at most
DENSE, RATIO = 40, 1.04  # places among non-members: the first ones, then at this ratio
STEP = 0.8  # ratio between numbers of false members that are tried in turn
HALVINGS = 6  # of the search for the level of each place


def conformal_p(members: FloatArray, nonmembers: FloatArray) -> FloatArray:
    """Conformal p-value of each member: how rarely a non-member scores as high.

    (1 + number of non-members that score as high or higher) / (m + 1): ties count against the
    member. Where a member's score is exchangeable with theirs, the p-value is at most a with
    probability at most a (Bates, Candes, Lei, Romano and Sesia 2023, Annals of Statistics 51:149).

    Args:
        members: their scores, `(n,)`.
        nonmembers: their scores, `(m,)`.

    Returns:
        p-values, `(n,)` in (0, 1].
    """
    return (1 + count_as_high(members, nonmembers)) / (len(nonmembers) + 1)


def count_as_high(members: FloatArray, nonmembers: FloatArray) -> IntArray:
    """How many non-members score as high as each member, or higher.

    Args:
        members: their scores, `(n,)`.
        nonmembers: their scores, `(m,)`.

    Returns:
        numbers, `(n,)` in 0..m.
    """
    return len(nonmembers) - np.searchsorted(np.sort(nonmembers), members, side="left")


def exceeds_rate(members: FloatArray, nonmembers: FloatArray, target: float) -> NDArray[np.bool_]:
    """Which members are found where at most so large a share of the non-members is.

    Args:
        members: their scores, `(n,)`.
        nonmembers: their scores, `(m,)`, which set the threshold.
        target: false-positive rate, in (0, 1).

    Returns:
        whether each is found, `(n,)`; as many as the TPR of `fedmia.statistics.thresholds` says.
    """
    return count_as_high(members, nonmembers) <= target * len(nonmembers) + 1e-9


def most_false(members: FloatArray, nonmembers: FloatArray, level: float = LEVEL) -> IntArray:
    """Upper bound on the false discoveries of every list that begins at the top, all at once.

    Of so many false members, those before each non-member are bounded by `envelope`. How many
    there can be follows from the same event: were there more than `v`, then more of them would lie
    high up than the envelope of `v` allows. So ever smaller numbers are tried in turn, as long as
    the scores contradict them; each envelope lies under the one before it.

    Args:
        members: their scores, `(n,)`; of each subject one, where images belong to subjects.
        nonmembers: their scores, `(m,)`, likewise; at least one.
        level: probability with which all bounds hold, in (0, 1).

    Returns:
        the bound among the first 1, 2, .. n members by falling score, `(n,)`; k: it says nothing.
    """
    n, m = len(members), len(nonmembers)
    before = np.sort(count_as_high(members, nonmembers))
    limit, trial = np.full(m + 1, n), n
    while trial > 0:
        tried = np.minimum(envelope(trial, m, level), n)
        if (tried > limit).any():
            break  # it says less than the one before it, which holds for fewer, too
        limit = tried
        # Members before each place, and how many false ones there are at most by its limit.
        reached = np.searchsorted(before, np.arange(m), side="right")
        fewer = int(STEP * trial)
        if fewer + 1 <= (limit[:m] + n - reached).min():
            break
        trial = fewer
    if trial == 0:
        return np.zeros(n, np.int64)
    bound = np.minimum(limit[before], np.arange(1, n + 1))
    # A list has no more false members than a longer one, nor than a shorter one and what it adds.
    bound = np.minimum.accumulate(bound[::-1])[::-1]
    rest = np.minimum.accumulate(np.r_[0, bound - np.arange(1, n + 1)])[1:]
    return np.asarray(rest + np.arange(1, n + 1), np.int64)


def envelope(count: int, m: int, level: float = LEVEL) -> IntArray:
    """How many of `count` members, exchangeable with m non-members, lie before each non-member.

    At each place alone their number is beta-binomial. Its quantiles at one level of each place
    are taken, the largest for which the chance of all at once is at least `level`; this chance is
    computed, not simulated: members and non-members in turn are a walk of independent steps, given
    where it ends (quantiles as a family of curves, one of which is chosen: Blanchard, Neuvial and
    Roquain 2020, Annals of Statistics 48:1281).

    Args:
        count: members, at least 1.
        m: non-members, at least 1.
        level: probability, in (0, 1).

    Returns:
        `(m + 1,)`: most members before the 1st, 2nd, .. m-th non-member from the top, and all;
        over LONGEST it may say `count`.
    """
    places, window = _places(m), min(count, LONGEST)
    beyond, chance = _beyond(count, m, places, window), _Walk(count, m, places, window)
    # At the lower end all hold at once by Bonferroni's inequality.
    low, high = (1 - level) / len(places), 1 - level
    most = (beyond > low).sum(axis=1)
    for _ in range(HALVINGS):
        middle = float(np.sqrt(low * high))
        tried = (beyond > middle).sum(axis=1)
        if chance.stays_under(tried) >= level:
            low, most = middle, tried
        else:
            high = middle
    most = np.where(most > window, count, most)
    # Before a place between two lie no more than before the later one.
    return np.r_[most[np.searchsorted(places, np.arange(m))], count]


def _places(m: int) -> IntArray:
    """Non-members at which a walk is bounded, from 0 on, the last one always."""
    if m <= DENSE:
        return np.arange(m)
    steps = int(np.ceil(np.log(m / DENSE) / np.log(RATIO)))
    sparse = np.minimum((DENSE * RATIO ** np.arange(steps + 1)).astype(np.int64), m - 1)
    return np.unique(np.r_[np.arange(DENSE), sparse, m - 1])


def _beyond(count: int, m: int, places: IntArray, window: int) -> FloatArray:
    """P(more than k members lie before the non-member at each place), (places, window + 1)."""
    log = scipy.special.gammaln
    k, j = np.arange(window + 1), places[:, None]
    chance = (
        log(k + j + 1) - log(k + 1) - log(j + 1)
        + log(count - k + m - j) - log(count - k + 1) - log(m - j)
        - log(count + m + 1) + log(count + 1) + log(m + 1)
    )  # fmt: skip
    beyond = 1 - np.cumsum(np.exp(chance), axis=1)
    if window == count:
        beyond[:, -1] = 0.0
    return np.asarray(beyond)


class _Walk:
    """Members and non-members from the top on, as independent steps given where they end."""

    def __init__(self, count: int, m: int, places: IntArray, window: int) -> None:
        self.count, self.m, self.places, self.window = count, m, places, window
        self.share, self.k = count / (count + m), np.arange(window + 1)
        # Members between the non-members at one place and at the next, by how many they are.
        between = np.diff(places, prepend=-1)[:, None]
        self.added = scipy.stats.nbinom.pmf(self.k, between, 1 - self.share)

    def stays_under(self, most: IntArray) -> float:
        """P(before the non-member at each place lie at most so many members)."""
        bounded = np.flatnonzero(most < min(self.count, self.window + 1))
        if not len(bounded):
            return 1.0
        ways = np.ones(1)
        for at in range(bounded[-1] + 1):  # an unbounded place comes after all bounded ones
            end = int(most[at]) + 1
            ways = np.convolve(ways, self.added[at, :end])[:end]
        last, here = int(self.places[bounded[-1]]), self.k[: len(ways)]
        left, steps = self.count - here, self.count + self.m - here - last - 1
        rest = scipy.stats.binom.pmf(left, steps, self.share)
        whole = scipy.stats.binom.pmf(self.count, self.count + self.m, self.share)
        return float(ways @ rest / whole)
