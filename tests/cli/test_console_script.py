"""The installed command in a folder of the user's: its plugins are found, and hide none of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.study.scheduler import command
from tests.cli.test_bad_input import OWN_ATTACK

ROOT = Path(__file__).resolve().parents[2]
# What the console script runs, and where it looks for modules: never in the working folder.
PROGRAM = "import sys; from fedmia.cli.main import main; sys.exit(main())"
SCRIPT = [sys.executable, "-P", "-c", PROGRAM]
DATA = """
from fedmia.data.synthetic import Synthetic

class Mine(Synthetic):
    "Images of one's own."
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with plugins, and with folders that are called as packages of ours."""
    (tmp_path / "norm_attack_here.py").write_text(OWN_ATTACK)
    (tmp_path / "data_here.py").write_text(DATA)
    for name in ("clients", "strategies", "fedmia"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not ours')\n")
    return tmp_path


def test_plugins_here__are_found_after_all_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    before = list(sys.path)
    registry.load("attack", "similarity")
    assert sys.path == before, "a plugin of our own needs no other folder"
    assert registry.load("attack", "norm_attack_here:Norm").__name__ == "Norm"
    assert sys.path == [*before, str(folder)]
    with pytest.raises(InputError, match="cannot load attack 'absent:Norm': No module named"):
        registry.load("attack", "absent:Norm")
    assert sys.path == [*before, str(folder)], "once"


def test_child__looks_where_the_study_does_and_not_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the study has loaded a plugin from here or not."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(ROOT), *(p for p in sys.path if p)])
    for name in ("attack", "norm_attack_here:Norm"), None:
        line = list(command("fedmia.cli.main", "--version"))
        pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
        # It ends, with all of its group, as soon as its input does.
        with subprocess.Popen(line, text=True, start_new_session=True, **pipes) as process:
            assert process.stdout and process.stdout.read().startswith("fedmia ")
            assert process.wait() == 0
        if name:
            registry.load(*name)


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize(
    "line",
    ["simulate --dataset data_here:Mine --backend ray --out RUN", "study --seeds 2 --out STUDY"],
)
def test_commands__use_the_plugins_of_the_folder(folder: Path, line: str) -> None:
    small = "--config smoke --clients 2 --rounds 1 --attacker none --quiet"
    done = subprocess.run(
        [*SCRIPT, *f"{line} --attacks norm_attack_here:Norm {small}".split()], cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "norm_attack_here:Norm has AUC" in done.stdout or "2 of 2 runs" in done.stdout


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("words", ["fedmia.cli.main list attack", "fedmia.audit --help"])
def test_page__ends_well_where_its_reader_has_read_enough(words: str) -> None:
    """As in `fedmia list attack | head -1`."""
    read, write = os.pipe()
    os.close(read)
    line = [sys.executable, "-m", *words.split()]
    done = subprocess.run(line, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
