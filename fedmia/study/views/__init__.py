"""Views of a study, one file each: what compares its runs in tables, figures and a sentence.

They are loaded by name from the registry (`--view`); plugins add their own.
Start with `baseline`, the smallest; every view subclasses `fedmia.study.view.StudyView`.
"""
