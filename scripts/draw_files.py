"""Draw source files at random, to be read beside their like in other projects.

python scripts/draw_files.py SEED [NUMBER]: files of the packages with at least 60 lines, without
``__init__``. One seed draws the same files from the same list of files.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def draw_files(seed: int, number: int = 5) -> list[str]:
    """Draw source files without replacement.

    Args:
        seed: of the draw.
        number: how many files.

    Returns:
        Their paths from the root of the project.
    """
    paths = [
        path
        for name in ("fedmia", "clients", "strategies")
        for path in ROOT.glob(f"{name}/**/*.py")
    ]
    long = [
        path for path in paths if path.name != "__init__.py" and path.read_text().count("\n") >= 60
    ]
    names = sorted(path.relative_to(ROOT).as_posix() for path in long)
    return random.Random(seed).sample(names, number)


if __name__ == "__main__":
    print("\n".join(draw_files(*map(int, sys.argv[1:]))))
