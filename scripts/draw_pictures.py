"""Draws the pictures of docs/concepts, each for light and for dark pages.

python scripts/draw_pictures.py

`who-sees-what` is made of boxes and lines; `epsilon` shows the bound that a guarantee of (epsilon,
0) puts on every ROC curve.
"""

from __future__ import annotations

import math
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
THEMES = {
    "light": {"ink": "#1f2430", "soft": "#5b6472", "line": "#8a93a3", "box": "#f2f4f8",
              "hot": "#b3261e", "tints": ["#1b5e9e", "#00796b", "#8d5a00", "#8e3b8e"]},
    "dark": {"ink": "#e8eaf0", "soft": "#aab2c0", "line": "#7d8696", "box": "#232833",
             "hot": "#ff8a80", "tints": ["#7fb8f0", "#5fd0c0", "#f0b95a", "#dd9add"]},
}  # fmt: skip
FONT = "font-family='system-ui, sans-serif'"


def text(
    x: float, y: float, words: str, color: str, size: int = 15, more: str = "", at: str = "middle"
) -> str:
    """A line of text whose start, middle or end is at x."""
    return (
        f"<text x='{x}' y='{y}' fill='{color}' font-size='{size}' text-anchor='{at}' "
        f"{FONT} {more}>{words}</text>"
    )


def box(x: float, y: float, w: float, h: float, edge: str, fill: str) -> str:
    """A box with round corners."""
    return (
        f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='8' fill='{fill}' "
        f"stroke='{edge}' stroke-width='2'/>"
    )


def arrow(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    """A line with a head at its end."""
    angle = math.atan2(y2 - y1, x2 - x1)
    points = [(x2, y2)] + [
        (x2 - 10 * math.cos(angle + s), y2 - 10 * math.sin(angle + s)) for s in (-0.4, 0.4)
    ]
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='{color}' stroke-width='2'/>"
        f"<polygon points='{head}' fill='{color}'/>"
    )


def who_sees_what(theme: str) -> str:
    """The federation, and what each attacker sees of it."""
    c = THEMES[theme]
    ink, soft, line, fill, hot = c["ink"], c["soft"], c["line"], c["box"], c["hot"]
    server, client, outsider, member = c["tints"][1], c["tints"][2], c["tints"][0], c["tints"][3]
    parts = [
        box(300, 40, 260, 84, server, fill),
        text(430, 66, "Server", ink, 17, "font-weight='bold'"),
        text(430, 88, "averages the updates", soft, 14),
        text(430, 110, "sees the update of every client", server, 14),
        box(640, 40, 240, 84, outsider, fill),
        text(760, 66, "Outsider", ink, 17, "font-weight='bold'"),
        text(760, 88, "downloads the encoder", soft, 14),
        text(760, 110, "sees the released model", outsider, 14),
        arrow(560, 82, 638, 82, line),
        text(599, 72, "release", soft, 13),
    ]
    boxes = ((40, "Client 1", line), (300, "Client 2", line), (560, "Client 3", client))
    for x, name, edge in boxes:
        attacker = name == "Client 3"
        does = "attacks: it may craft its update" if attacker else "honest"
        sees = "sees the model of every round" if attacker else "trains on own images"
        parts += [
            box(x, 240, 260 - 20 * (x == 40) - 20, 96, edge, fill),
            text(x + 115, 266, name, ink, 17, "font-weight='bold'"),
            text(x + 115, 289, does, soft, 14),
            text(x + 115, 311, sees, client if attacker else soft, 14),
        ]  # fmt: skip
    for x, to in ((140, 330), (400, 415), (650, 500)):
        parts += [arrow(x, 238, to, 128, line), arrow(to + 16, 126, x + 16, 236, line)]
    parts += [
        text(150, 176, "updates up,", soft, 13),
        text(150, 193, "model down", soft, 13),
        box(40, 384, 490, 66, member, fill),
        text(285, 411, "Members: images of honest clients", ink, 16, "font-weight='bold'"),
        text(285, 434, "never leave their client; nobody else sees them", member, 14),
        arrow(150, 382, 150, 340, line),
        arrow(410, 382, 410, 340, line),
        text(715, 411, "The question of every attacker:", soft, 14),
        text(715, 434, "was this image a member?", hot, 16, "font-weight='bold'"),
    ]
    return svg(920, 480, "Who sees what in a federation: outsider, client, server", parts)


def bound(epsilon: float, fpr: float) -> float:
    """The highest TPR at an FPR that any test has against (epsilon, 0)-privacy.

    Args:
        epsilon: at least 0.
        fpr: false-positive rate in [0, 1].

    Returns:
        A rate in [0, 1].
    """
    return min(math.exp(epsilon) * fpr, 1 - math.exp(-epsilon) * (1 - fpr))


def epsilon_figure(theme: str) -> str:
    """The ROC curves that no attack can exceed."""
    c = THEMES[theme]
    ink, soft, line = c["ink"], c["soft"], c["line"]
    left, top, side = 70, 30, 340

    def place(fpr: float, tpr: float) -> str:
        return f"{left + side * fpr:.1f},{top + side * (1 - tpr):.1f}"

    parts = [
        f"<rect x='{left}' y='{top}' width='{side}' height='{side}' fill='none' stroke='{line}'/>",
        f"<polyline points='{place(0, 0)} {place(1, 1)}' fill='none' stroke='{line}' "
        "stroke-dasharray='5 5'/>",
        text(left + side / 2, top + side + 46, "false-positive rate (FPR)", ink),
        text(0, 0, "true-positive rate (TPR)", ink, 15,
             f"transform='translate(22,{top + side / 2}) rotate(-90)'"),
        text(left + side - 44, top + side - 14, "a guess", soft, 13),
    ]  # fmt: skip
    for tick in (0, 0.5, 1):
        parts += [
            text(left + side * tick, top + side + 20, f"{tick:g}", soft, 13),
            text(left - 18, top + side * (1 - tick) + 5, f"{tick:g}", soft, 13),
        ]
    for i, (eps, color) in enumerate(zip((0.5, 1, 2, 4), c["tints"], strict=True)):
        corner = 1 / (1 + math.exp(eps))
        points = " ".join([place(0, 0), place(corner, 1 - corner), place(1, 1)])
        y = top + 40 + 30 * i
        words = f"epsilon {eps:g}: AUC at most {1 - corner:.2f}"
        parts += [
            f"<polyline points='{points}' fill='none' stroke='{color}' stroke-width='2.5'/>",
            f"<line x1='{left + side + 30}' y1='{y}' x2='{left + side + 60}' y2='{y}' "
            f"stroke='{color}' stroke-width='3'/>",
            text(left + side + 70, y + 5, words, ink, 14, at="start"),
        ]
    return svg(690, 440, "The highest ROC curve at each epsilon", parts)


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    """A whole picture."""
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"width='{width}' height='{height}' role='img'><title>{title}</title>"
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def main() -> None:
    """Write every picture."""
    for theme in THEMES:
        for name, draw in (("who-sees-what", who_sees_what), ("epsilon", epsilon_figure)):
            (IMAGES / f"{name}-{theme}.svg").write_text(draw(theme), encoding="utf-8")


if __name__ == "__main__":
    main()
