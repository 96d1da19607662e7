"""Views of a study, one file each: what compares its runs in tables, figures and a sentence.

The commands load them by name from the registry (`--views`); plugins add their own.
Start with `baseline`, the smallest; every view subclasses `fedmia.study.view.View`.
"""
