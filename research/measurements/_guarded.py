"""Reads of hostile files in processes that are limited and watched: what each did, and what it
cost."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedmia.runtime import environment
from fedmia.settings.errors import InputError
from strategies.replies import RejectedReply

SECONDS = 20  # of a processor that a read may take; ten times as many by the clock
OVER = 2 << 30  # bytes of memory that it may take beside the file's own
ROOM = 6 << 30  # of addresses, beyond which an allocation fails
LINE = 600  # characters of a message
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect")
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.symlink", "os.truncate", "shutil.rmtree")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# What libraries keep of their own is no file of the reader's.
CACHES = ("__pycache__", "/.cache/matplotlib", "/.config/matplotlib")
OWN = ("/dev/", "/proc/", "/sys/")


@dataclass
class Outcome:
    """What became of one file.

    Attributes:
        kind, name: of the file.
        result: `read`, `refused`, or what went wrong: `traceback`, `unnamed`, `long`, `rejected`
            (an honest file was refused), `hang`, `memory`, `ran`, `outside`, `died`.
        message: the line that refuses it, or what shows the fault.
        seconds: of a processor that the read took.
        peak_mib: memory that it took at most, over what the process had before.
        lines: printed on standard error beside.
    """

    kind: str
    name: str
    result: str
    message: str = ""
    seconds: float = 0.0
    peak_mib: float = 0.0
    lines: int = 0


@dataclass(frozen=True)
class Case:
    """One file, or folder of them, and how it is read.

    Attributes:
        kind, name: for the table.
        write: writes it into a folder and returns its path.
        read: reads it; InputError refuses it.
        honest: whether it must be read: else what is changed of it is refused for another reason.
    """

    kind: str
    name: str
    write: Callable[[Path], Path]
    read: Callable[[Path], object]
    honest: bool = False


def run_cases(cases: Sequence[Case], sandbox: Path) -> Iterator[Outcome]:
    """The outcome of each case, in order.

    A process reads one after the other. Where it dies or hangs, another goes on with the next.

    Args:
        cases: to read.
        sandbox: an empty folder; `inside` is the reader's, `outside` nobody's.
    """
    for name in ("inside", "outside"):
        (sandbox / name).mkdir(parents=True, exist_ok=True)
    (sandbox / "outside" / "keep.safetensors").write_bytes(b"kept")
    at = 0
    while at < len(cases):
        ends = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.close(ends[0])
            _read_all(cases[at:], sandbox, ends[1])
        os.close(ends[1])
        with os.fdopen(ends[0], encoding="utf-8") as lines:
            for line in lines:
                yield Outcome(**json.loads(line))
                at += 1
        _, status = os.waitpid(child, 0)
        if at < len(cases) and status:
            case, code = cases[at], os.waitstatus_to_exitcode(status)
            result = "hang" if code in (-signal.SIGALRM, -signal.SIGPROF) else "died"
            yield Outcome(case.kind, case.name, result, f"exit {code}", float(SECONDS))
            at += 1


def _read_all(cases: Sequence[Case], sandbox: Path, out: int) -> None:
    """Read them and write their outcomes; never returns."""
    code = 1
    try:
        room = _status("VmSize") + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        environment.commit = lambda source=None: None  # it starts git, which no file may
        os.chdir(sandbox / "inside")
        tempfile.tempdir = str(sandbox / "inside")
        errors = (sandbox / "stderr").open("w+b")
        os.dup2(errors.fileno(), 2)
        os.dup2(errors.fileno(), 1)
        events: list[str] = []
        sys.addaudithook(lambda event, args: _note(event, args, sandbox / "inside", events))
        for number, case in enumerate(cases):
            folder = sandbox / "inside" / f"{os.getpid()}-{number}"
            outcome = _read_one(case, folder, sandbox, errors, events)
            os.write(out, (json.dumps(asdict(outcome)) + "\n").encode())
        code = 0
    finally:
        os._exit(code)


def _read_one(case: Case, folder: Path, sandbox: Path, errors: Any, events: list[str]) -> Outcome:
    folder.mkdir()
    path = case.write(folder)
    before, size = _listing(sandbox, folder), _size(path)
    errors.truncate(0)
    events.clear()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    signal.alarm(10 * SECONDS)  # either signal kills the process
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    had, began = _status("VmRSS"), time.process_time()
    noted: list[str] = []
    failure: BaseException | None = None
    try:
        case.read(path)
        result, message = "read", ""
    except (InputError, RejectedReply) as error:
        result, message, failure = "refused", str(error), error
    except BaseException as error:  # whatever a user would see as a traceback
        result, message = "traceback", f"{type(error).__name__}: {error} {_place(error)}"
    finally:
        noted += events
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    took, peak = time.process_time() - began, _status("VmHWM") - had
    sys.stderr.flush()
    said = errors.seek(0) or errors.read()
    if result == "refused" and case.honest:
        result = "rejected"
    if result == "refused":
        if not isinstance(failure, RejectedReply) and path.name not in message:
            result = "unnamed"
        elif len(message) > LINE or "\n" in message:
            result = "long"
    if took > SECONDS:
        result = "hang"
    if peak > OVER + size:
        result = "memory"
    if _listing(sandbox, folder) != before:
        result, message = "outside", "files beside the folder changed"
    for event in noted:
        result, message = "ran" if event.startswith("start") else "outside", event
    if (sandbox / "outside" / "ran").exists():
        (sandbox / "outside" / "ran").unlink()
        result, message = "ran", "the planted code ran"
    shutil.rmtree(folder, ignore_errors=True)
    lines = len(said.splitlines())
    return Outcome(case.kind, case.name, result, message[:2000], took, peak / 2**20, lines)


def _note(event: str, args: Any, inside: Path, events: list[str]) -> None:
    """Keep what starts a process or a connection, and what changes a file elsewhere."""
    if event in STARTS:
        events.append(f"start: {event} {args!r}"[:300])
        return
    writes = event == "open" and isinstance(args[2], int) and args[2] & WRITES
    if (writes or event in CHANGES) and isinstance(args[0], str | bytes | os.PathLike):
        where = os.path.abspath(os.fsdecode(args[0]))
        if not where.startswith((*OWN, f"{inside}/")) and not any(n in where for n in CACHES):
            events.append(f"change: {event} {where}")


def _listing(sandbox: Path, folder: Path) -> list[tuple[str, int, int]]:
    """Files of the sandbox but those of this case, with sizes and times."""
    files = [p for p in sandbox.rglob("*") if p.is_file() and folder not in p.parents]
    own = (sandbox / "stderr", sandbox / "outside" / "ran")
    stats = [(str(p), p.stat()) for p in sorted(files) if p not in own]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(p.stat().st_size for p in files if p.is_file())


def _place(error: BaseException) -> str:
    """Where it was raised: the last lines that are of the project, then the last."""
    places, step = [], error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        places.append(f"{Path(code.co_filename).name}:{step.tb_lineno}")
        step = step.tb_next
    return f"[{' > '.join(places[-6:])}]"


def _status(name: str) -> int:
    """Bytes, as /proc/self/status has them in kB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
