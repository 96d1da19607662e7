"""What lies on the disk: a run's folder, its models and updates by round, results kept by name.

The federation writes it, evaluation and `fedmia.runs` read it. Start at `runfolder.RunFolder` for
folders, and `fedmia.recording` holds models.
"""
