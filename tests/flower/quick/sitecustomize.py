"""Imported by each process of Flower as it starts: nodes and server sleep 3 s between two questions
whether a message has come, and a test need not."""

import time
from functools import partial


def _sleep(sleep, seconds: float) -> None:  # type: ignore[no-untyped-def]
    sleep(0.25 if seconds == 3 else seconds)


time.sleep = partial(_sleep, time.sleep)
