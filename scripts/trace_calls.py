"""Which functions of the product one run calls, from its flags to its report.

    python scripts/trace_calls.py AFTER.json [--against BEFORE.json] [flags of simulate]

Runs `python -m fedmia.simulate` in this process with the flags, or with `DEFAULT`, and writes the
JSON. Counts over all threads: distinct functions of fedmia, clients and strategies; distinct pairs
of a caller and what it calls; of them those that change the package; all calls that change it.

A function is a `def`, a nested one, a method or a property too, told by its file and its qualified
name. Lambdas, comprehensions, class bodies and the methods that a dataclass makes are none: what
they call, as what torch or Flower calls, is called by the nearest function of the product below.
What runs while a module is imported does not count. Each resumption of a generator is a call.
"""

import inspect
import json
import runpy
import sys
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType

import fedmia

ROOT = Path(fedmia.__file__).resolve().parents[1]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("fedmia", "clients", "strategies"))
DEFAULT = ("--config", "smoke", "--attacker", "active", "--quiet", "--out")
IMPORT = "import"  # on a stack: a module's code and all that it calls
PAIRS: list[Counter[tuple[str, str]]] = []  # one of each thread


class Thread(threading.local):
    """The product's functions on the stack of a thread, and the pairs seen there."""

    def __init__(self) -> None:
        self.stack, self.pairs = [""], Counter[tuple[str, str]]()
        PAIRS.append(self.pairs)


def profile(frame: FrameType, event: str, _: object, here: Thread = Thread()) -> None:  # noqa: B008
    """Note a call of the product's code, or its return."""
    code, is_function = frame.f_code, frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if not code.co_filename.startswith(PACKAGES) or not code.co_filename.endswith(".py"):
        return
    if code.co_name.startswith("<") and (is_function or frame.f_globals["__name__"] == "__main__"):
        return
    if event == "return" and len(here.stack) > 1:
        here.stack.pop()
    elif event == "call":
        name = f"{Path(code.co_filename).relative_to(ROOT).as_posix()}:{code.co_qualname}"
        importing = not is_function or here.stack[-1] == IMPORT
        here.pairs[here.stack[-1], name] += not importing
        here.stack.append(IMPORT if importing else name)


def package(function: str) -> str:
    """`fedmia.report` of a function below that folder; `fedmia` of one of a file beside it."""
    parts = function.partition(":")[0].split("/")
    return ".".join(parts[: 1 + (len(parts) > 2 and parts[0] == "fedmia")])


if __name__ == "__main__":
    words = sys.argv[1:]
    before = json.loads(Path(words.pop(2)).read_text()) if words[1:2] == ["--against"] else {}
    with tempfile.TemporaryDirectory() as folder, suppress(SystemExit):
        sys.argv = ["simulate", *(words[2 if before else 1 :] or [*DEFAULT, f"{folder}/run"])]
        threading.setprofile(profile)
        sys.setprofile(profile)
        runpy.run_module("fedmia.simulate", run_name="__main__", alter_sys=True)
    sys.setprofile(None)
    calls, pairs = Counter[str](), +sum(PAIRS, Counter[tuple[str, str]]())
    for (_, function), count in pairs.items():
        calls[function] += count
    changes = [pair for pair in pairs if pair[0] and package(pair[0]) != package(pair[1])]
    result = {
        "functions": len(calls),
        "pairs": sum(bool(caller) for caller, _ in pairs),
        "pairs that change the package": len(changes),
        "calls that change the package": sum(pairs[pair] for pair in changes),
        "functions of": dict(sorted(Counter(map(package, calls)).items())),
        "calls": dict(sorted(calls.items())),
    }
    Path(words[0]).write_text(json.dumps(result, indent=1) + "\n")
    for key, figure in list(result.items())[:4]:
        print(key, figure, f"{figure / before[key]:.0%} of {before[key]}" if before else "")
