"""Experiment trackers that follow a run: one tracker a file, `--observe NAME`.

`fedmia.simulate` calls them after every round and with the report. Each runs in a thread of its
own, so a tracker that hangs cannot stop a run. Start at `base.RunObserver`, which yours subclasses.
"""
