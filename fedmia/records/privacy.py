"""Privacy statements: epsilon, what it rests on, and whose it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MEANINGFUL = 20.0  # a larger epsilon is printed as no meaningful guarantee
NOISE = {
    "seeded": "Noise, coins and cohorts come from a seeded generator: a simulation, whose noise "
    "can be drawn again by whoever has the settings.",
    "entropy": "Noise, coins and cohorts come from the operating system's entropy. Not covered: "
    "the generators that it starts are not cryptographic, and floating point leaves gaps in their "
    "noise (Mironov, CCS 2012).",
}
UNITS = ("image", "client")


@dataclass(frozen=True)
class Epsilon:
    """A privacy statement, printed with what it rests on.

    Attributes:
        value: epsilon spent over all `rounds`, None where none can be stated.
        delta: of (epsilon, delta)-DP, 0 for pure DP.
        rounds: number of rounds that it covers.
        standing: `guaranteed`, `heuristic` or `empirical`.
        assumptions: one sentence: unit of privacy, what is assumed, why the standing.
        canaries: of an audit of the mechanism, each in with probability 1/2; 0: there was none.
        guesses: numbers of canaries guessed, fixed in advance.
        correct: how many of each were right.
        unit: of privacy, one of UNITS; empty where a plugin does not say.
        audit: how the lower bound was measured: by canaries in one run of any mechanism,
            `one-run`; of a mu-GDP mechanism, `one-run-gdp`; of that with a run for each canary,
            `own-runs-gdp`.
        noise_source: a key of NOISE, which says what it means.
    """

    value: float | None
    delta: float
    rounds: int
    standing: str
    assumptions: str
    canaries: int = 0
    guesses: Sequence[int] = ()
    correct: Sequence[int] = ()
    unit: str = ""
    audit: str = "one-run"
    noise_source: str = "seeded"


@dataclass(frozen=True)
class ClientDefence:
    """The defence of one client, or all its defences together.

    Attributes:
        name: of the defence; of several a list of their names.
        epsilon: the privacy statement; of several what they promise together; None: none.
        metrics: numbers that the defence returned.
        parts: of several each of them, in order, without parts of their own.
        beside: further statements, of another unit or delta: two such epsilons are never compared.
    """

    name: str
    epsilon: Epsilon | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[ClientDefence, ...] = ()
    beside: tuple[Epsilon, ...] = ()
