"""Recordings: what a federation trained, round by round, in a folder with a published format.

`writer.py` writes one while the federation runs, `reader.py` reads it, `format.py` says what is in
it. Nothing here needs Flower or Ray: `fedmia.flower.record` records any Flower app,
`fedmia.federation` fedmia's own, and `fedmia.evaluation` scores what either left.
"""

from fedmia.recording.reader import Recording
from fedmia.recording.writer import RecordingWriter

__all__ = ["Recording", "RecordingWriter"]
