"""Imported by each process of Flower as it starts: nodes and server sleep 3 s between two questions
whether a message has come, and a killed node is missed after a minute. A test need not wait."""

import sys
import time
from functools import partial


def _sleep(sleep, seconds: float) -> None:  # type: ignore[no-untyped-def]
    sleep(0.25 if seconds == 3 else seconds)


time.sleep = partial(_sleep, time.sleep)
if any("flower-supernode" in word for word in sys.orig_argv):
    from flwr.common import constant

    constant.HEARTBEAT_DEFAULT_INTERVAL = 10  # seconds; Flower misses who is silent for two
