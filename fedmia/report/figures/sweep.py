"""Figure of a sweep: leakage against what the attacker has."""

from __future__ import annotations

from fedmia.report.figures import canvas
from fedmia.report.rows import Report, with_auc

LABELS = {
    "known": "known images a side",
    "query_budget": "query budget, images embedded",
}
APART = 0.012  # of the axis, between the markers of two attacks at one value


def by_value(report: Report) -> bytes | None:
    """AUC of every attack at each value with its 95 % interval; None without a sweep.

    The values stand at equal distances, the attacks of one value side by side.
    """
    rows = with_auc(r for r in report.get("sweep", ()) if r["not_run"] is None)
    if not rows:
        return None
    values = sorted({r["value"] for r, _ in rows})
    names = list(dict.fromkeys(r["attack"] for r, _ in rows))
    first = rows[0][0]
    with canvas.style():
        figure = canvas.new(7.5, 4.6)
        axes = figure.add_subplot()
        for i, name in enumerate(names):
            own = sorted(
                ((r["value"], auc) for r, auc in rows if r["attack"] == name), key=lambda o: o[0]
            )
            shift = (i - (len(names) - 1) / 2) * APART * max(len(values), 2)
            places = [values.index(value) + shift for value, _ in own]
            colour = canvas.COLOURS[i % len(canvas.COLOURS)]
            for place, (_, auc) in zip(places, own, strict=True):
                axes.plot([place] * 2, auc.ci, color=colour, linewidth=1.2, alpha=0.8)
            axes.plot(
                places,
                [auc.value for _, auc in own],
                color=colour,
                marker=canvas.MARKERS[i % len(canvas.MARKERS)],
                linestyle=canvas.DASHES[i % len(canvas.DASHES)],
                label=name,
            )
        canvas.half_line(axes, vertical=False)
        axes.set_xticks(range(len(values)), [f"{v:,}" for v in values])
        axes.set_xlim(-0.4, len(values) - 0.6)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.set_xlabel(LABELS.get(first["sweep"], first["sweep"]))
        axes.set_ylabel("AUC, 95 % interval")
        n = canvas.counts(first["n_members"], first["n_nonmembers"])
        axes.set_title(f"Leakage by what the attacker has ({n})")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=3)
        return canvas.png(figure)
