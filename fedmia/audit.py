"""`python -m fedmia.audit`: every attack that can run, on an encoder that somebody brings."""

from __future__ import annotations

import time

_STARTED = time.perf_counter()

import signal  # noqa: E402
import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from threading import Event  # noqa: E402
from types import FrameType  # noqa: E402

from fedmia.auditing import pages  # noqa: E402
from fedmia.auditing.flags import parse  # noqa: E402
from fedmia.auditing.run import INTERRUPTED, conduct  # noqa: E402
from fedmia.errors import InputError  # noqa: E402
from fedmia.runtime.stopwatch import Stopwatch  # noqa: E402
from fedmia.shadows.train import Stopped  # noqa: E402

BAD_INPUT = 2  # exit code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 2 bad input or nothing could run, 1 an attack
    broke (the others are reported), 130 interrupted."""
    watch = Stopwatch(_STARTED)
    watch.claim("import")
    stop = Event()
    before = signal.signal(signal.SIGINT, _Interrupt(stop))
    try:
        asked = parse(sys.argv[1:] if argv is None else argv)
        if asked.page is not None:
            sys.stdout.write(pages.page(asked.page).rstrip("\n") + "\n")
            return 0
        return conduct(asked, watch, stop)
    except InputError as error:
        print("fedmia: error: " + " ".join(str(error).split()), file=sys.stderr)
        return BAD_INPUT
    except (KeyboardInterrupt, Stopped):
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, before)


class _Interrupt:
    """First Ctrl-C: report on the finished attacks. Second: stop at once."""

    def __init__(self, stop: Event) -> None:
        self.stop = stop

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.stop.set()
        print(
            "\nfedmia: interrupted; reporting on the finished attacks after this one (Ctrl-C again "
            "stops at once)",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
