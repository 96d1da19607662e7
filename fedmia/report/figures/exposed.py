"""Images that are found, missed and falsely found, where the user shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedmia.records import Evaluation, FloatArray, Picture
from fedmia.records.rows import Report
from fedmia.report.clients import declared_attack
from fedmia.report.figures import canvas
from fedmia.report.figures.base import ReportFigure, count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EACH = 8  # images a row


class Strip(ReportFigure):
    """Members of the highest scores, members of the lowest, non-members of the highest.

    Args:
        report: made of the scores.
        run: the scores.
    """

    name = "exposed"
    place = "exposed"

    def __init__(self, report: Report, run: Evaluation) -> None:
        super().__init__(report)
        self.picture: Picture | None = run.picture
        self.attack = declared_attack(run)

    def rows(self) -> dict[str, tuple[str, FloatArray, list[int]]]:
        """What a row shows -> role of its images, the scores of the role, places of the images."""
        assert self.attack is not None
        members, others = self.attack.sides
        falling, false = (np.argsort(-scores, kind="stable") for scores in (members, others))
        return {
            "members of the highest scores": ("scored_members", members, falling[:EACH].tolist()),
            "members of the lowest scores": (
                "scored_members", members, falling[::-1][:EACH].tolist(),
            ),
            "non-members of the highest scores": (
                "scored_nonmembers", others, false[:EACH].tolist(),
            ),
        }  # fmt: skip

    def plot(self) -> Figure | None:
        if self.picture is None or self.attack is None or not self.report.exposed:
            return None
        figure = canvas.new_figure(canvas.WIDE, 3.6)
        grid = figure.add_gridspec(3, 1)
        for row, (title, (role, scores, places)) in enumerate(self.rows().items()):
            part = figure.add_subfigure(grid[row])
            part.suptitle(title, x=0.01, ha="left")
            for axes, at in zip(part.subplots(1, EACH), places, strict=False):
                pixels, _ = self.picture(role, at)
                axes.imshow(pixels.transpose(1, 2, 0), cmap="gray", vmin=0, vmax=255,
                            interpolation="nearest")  # fmt: skip
                axes.set_title(f"{scores[at]:.3g}", loc="center", fontweight="normal")
            for axes in part.axes:
                axes.set_axis_off()
        return figure

    def caption(self) -> str:
        assert self.attack is not None
        return (
            f"Images by the score of {self.attack.name}, which stands over each: {EACH} members "
            f"that are found first, {EACH} that are missed, and the {EACH} non-members that would "
            "be taken for members first. They are single images: no method is behind the choice "
            "but the order of the scores."
        )

    def alt(self) -> str:
        assert self.attack is not None
        sides = [count(len(s), n) for s, n in zip(self.attack.sides, ("member", "non-member"),
                                                  strict=True)]  # fmt: skip
        return (
            f"Three rows of {EACH} images: members with the highest and with the lowest scores of "
            f"{self.attack.name}, and non-members with the highest, of {' and '.join(sides)}."
        )
