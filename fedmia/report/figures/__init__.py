"""The figures of a report, as PNG files: one module for each kind, their common style in `canvas`.

The report's page and the views of studies import them.
Start with `draw.figures`, which names every figure of a run and the function that draws it.
"""
