"""Seconds of the rounds of a simulation, and with `--parts` of what is done in them.

    python research/measurements/_timed_rounds.py [--parts] [FLAGS OF fedmia simulate]

The last lines that it prints are `SECONDS`, of each round to its end, and `PARTS`, of the rounds
after the first. Parts wait for the GPU before and after, so that its work counts where it was asked
for; of parts inside each other the innermost counts.
"""

from __future__ import annotations

import json
import pkgutil
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import wraps
from typing import Any

import torch

from fedmia.simulate import main
from strategies.base import FederatedStrategy

WAITING = "waiting"  # of the server's thread, while clients are at work
PARTS = {
    "fedmia.ssl.train:Job.run": "steps of the clients",
    "clients.client_group:_first_banks": "first queues, drawn client by client",
    "clients.client_group:stack_method": "weights stacked",
    "clients.client_group:begin_training": "weights stacked",
    "clients.client_group:gather": "states read from their slots",
    "fedmia.storage.arena:Arena.write": "states written to slots",
    "fedmia.storage.arrays:LazyArray.on_host": "updates copied to the host",
    "clients.app:train_group": "rest of a pass",
    "clients.app:write_content": "messages",
    "clients.app:_read_arrays": "messages",
    "strategies.replies:ReplyReader.__call__": "updates checked",
    "fedmia.federation.inline:LocalGrid.accept": "states kept",
    "strategies.base:FederatedStrategy.mean": "updates added up",
    "fedmia.federation.inline:InlineGrid._wait": WAITING,
}
HERE = threading.local()
SPENT: dict[str, float] = defaultdict(float)
ENDS = list[float]()


def charge() -> str:
    """The thread's part, after its seconds since the last charge went there."""
    if torch.cuda.is_available() and getattr(HERE, "part", "") != WAITING:
        torch.cuda.synchronize()
    now, part = time.perf_counter(), getattr(HERE, "part", "")
    SPENT[part] += now - getattr(HERE, "mark", now)
    HERE.mark = now
    return part


def hook(path: str, part: str) -> None:
    """Charge the function at `module:Class.name` to a part."""
    holder, last = re.split(r"[.:](?=\w+$)", path)
    owner: Any = pkgutil.resolve_name(holder)
    plain = getattr(owner, last)

    @wraps(plain)
    def hooked(*args: Any, **options: Any) -> Any:
        before = charge()
        HERE.part = part
        try:
            return plain(*args, **options)
        finally:
            charge()
            HERE.part = before

    setattr(owner, last, hooked)


def time_rounds() -> None:
    """Note when each round ends."""
    plain = FederatedStrategy.rounds

    @wraps(plain)
    def timed(*args: Any, **options: Any) -> Iterator[Any]:
        ENDS.append(time.perf_counter())
        for done in plain(*args, **options):
            ENDS.append(time.perf_counter())
            if len(ENDS) == 2:
                SPENT.clear()
            yield done

    FederatedStrategy.rounds = timed  # type: ignore[method-assign]


if __name__ == "__main__":
    flags = sys.argv[1:]
    time_rounds()
    if flags[:1] == ["--parts"]:
        flags = flags[1:]
        for place, name in PARTS.items():
            hook(place, name)
    code = main(flags)
    seconds = [after - before for before, after in zip(ENDS, ENDS[1:], strict=False)]
    print("SECONDS", json.dumps(seconds))
    print("PARTS", json.dumps({p: s for p, s in SPENT.items() if p not in ("", WAITING)}))
    sys.exit(code)
