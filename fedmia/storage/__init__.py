"""What lies on the disk: a run's folder, its models and updates by round, results kept by name.

The federation writes it, `runfolder.RunFolder` alone reads it. Start there for
folders, and `fedmia.recording` holds models.
"""
