"""Studies: many runs in one folder, made side by side, resumed after an interruption and compared.

`fedmia study` and `fedmia.run_study` import it. Start with `command.run_cells`; `scheduler` makes
the runs, `result.StudyResult` is their table, and each `view.StudyView` reads it.
"""
