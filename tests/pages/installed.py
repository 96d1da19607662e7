"""fedmia as a user has it: a wheel that was built from this clone and installed away from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

from tests.pages.reading import ROOT

TEMPLATE = "docs/howto/federated-simclr"  # a Flower app, which the wheel carries
SOURCES = ("fedmia", "clients", "strategies", "configs", "research/papers", "examples", TEMPLATE)
FILES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")


def copy_source(into: Path) -> Path:
    """The files that the packages are built from, copied, so that a build leaves none in the clone.

    Args:
        into: folder that will be made.
    """
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__", "snapshots")
        shutil.copytree(ROOT / name, into / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, into / name)
    return into


class Installed:
    """An environment that holds the wheel, and borrows all other packages from that of the tests.

    Args:
        home: folder of the environment; `install` fills it.
    """

    def __init__(self, home: Path) -> None:
        self.bin = home / "venv" / "bin"
        self.home = home
        left_out = ("PYTHONPATH", "FEDMIA_DATA", "FEDMIA_VENV", "VIRTUAL_ENV")
        self.env = {name: value for name, value in os.environ.items() if name not in left_out} | {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "PYTHONNOUSERSITE": "1",
            "OMP_NUM_THREADS": "1",
        }

    def install(self) -> None:
        """Build the wheel, and install it by pip into an environment of its own."""
        self.home.mkdir(parents=True)
        source = copy_source(self.home / "source")
        offline = ["--quiet", "--no-deps", "--no-index"]
        pip = [sys.executable, "-m", "pip"]
        built = [*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", "dist", source]
        subprocess.run(built, cwd=self.home, check=True)
        shutil.rmtree(source)
        venv.create(self.home / "venv", symlinks=True)
        # A line of a .pth file is a folder, whose own .pth files, such as that of an editable
        # install of the clone, are not read.
        (packages,) = (self.home / "venv" / "lib").glob("python*/site-packages")
        (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (wheel,) = (self.home / "dist").glob("fedmia-*.whl")
        here = [*pip, "--python", str(self.bin / "python"), "install", *offline, str(wheel)]
        subprocess.run(here, cwd=self.home, check=True)

    def run(self, words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a command in a folder; its program is sought in the environment first.

        Args:
            words: of the command.
            folder: to work in.
        """
        program = shutil.which(words[0], path=self.env["PATH"]) or words[0]
        return subprocess.run(
            [program, *words[1:]],
            cwd=folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
        )
