"""RMIA from a federation's rounds: the earlier global models take the place of shadows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedmia.attacks._reference import FromRounds
from fedmia.attacks._relative import Relative


@dataclass
class RMIARounds(FromRounds, Relative):
    """RMIA from rounds: an image's gain since the earlier rounds, against known non-members' gains.

    As `rmia` offline, with p_out the mean over the earlier global models that a client received.
    """

    paper: ClassVar[str] = (
        "Zarifzadeh et al., Low-Cost High-Power Membership Inference Attacks; references by round "
        "are fedmia's"
    )
