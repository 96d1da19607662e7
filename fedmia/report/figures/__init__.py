"""The figures of a report, as PNG files: one module for each kind, their common style in `canvas`.

The report's page and the views of studies import them.
Start with `base.ReportFigure`, what a figure declares, and `draw.figures`, which lists them all.
"""
