"""What the scripts install, and where .ci/run runs them: Python, pip and the checks are stubs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
CPU = "--index-url https://download.pytorch.org/whl/cpu --no-deps torch torchvision"
# Stands in for an environment's Python, in which LACKS cannot be installed and torch is TORCH.
PYTHON = f"""#!/usr/bin/env bash
case "$*" in
    *"pip install"*) echo "$*" >>"$0.log"; case "$*" in *"$LACKS"*) exit 1 ;; esac ;;
    *fedmia.__file__*) if [ -f "$0.log" ]; then echo "{ROOT}/fedmia/__init__.py"; fi ;;
    *'version("torch")'*) echo "$TORCH" ;;
    *urllib*) exit 1 ;;
    *pytest*) echo "$*" >>"$0.log" ;;
esac
"""


def bash(code: str, **env: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of a shell that has no other environment than this."""
    own = {"PATH": os.environ["PATH"], **{name: str(value) for name, value in env.items()}}
    command = ["bash", "-euo", "pipefail", "-c", code]
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True)


@dataclass(frozen=True)
class StubVenv:
    """A folder in which the scripts find an environment that installs nothing."""

    path: Path

    def __post_init__(self) -> None:
        python = self.path / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON)
        python.chmod(0o755)

    def calls(self) -> list[str]:
        """What Python was called for, but for questions."""
        return (self.path / "bin" / "python.log").read_text().splitlines()


@pytest.mark.parametrize(
    ("driver", "answers", "lacks", "torch", "reason", "cpu"),
    [
        (True, True, "none", "", "with CUDA (6 GB): there is a driver", False),
        (False, False, "none", "", "/whl/cpu does not answer", False),
        (False, True, "none", "", "without CUDA (1.5 GB): there is no driver", True),
        (False, True, "none", "2.0+cpu", "without CUDA (1.5 GB): there is no driver", True),
        (False, True, "--index-url", "", "/whl/cpu lacks a version", True),
        (False, True, "none", "2.0", "", False),
    ],
)
def test_ready__chooses_builds_of_torch_and_says_why(
    tmp_path: Path, driver: bool, answers: bool, lacks: str, torch: str, reason: str, cpu: bool
) -> None:
    venv = StubVenv(tmp_path / "venv")
    stubs = (
        f"uname() {{ echo Linux; }}; has_driver() {{ {str(driver).lower()}; }}; "
        f"cpu_builds_answer() {{ {str(answers).lower()}; }}"
    )
    code = f"source tools/env.sh; {stubs}; ready run"
    done = bash(code, FEDMIA_VENV=venv.path, LACKS=lacks, TORCH=torch)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "PyTorch" in line]
    assert len(said) == bool(reason) and reason in "".join(said)
    calls = venv.calls()
    assert [CPU in call for call in calls] == [True] * cpu + [False]
    assert calls[-1].endswith(f"--editable {ROOT}")
    assert all(f"--constraint {ROOT}/constraints.txt" in call for call in calls)
    again = bash(code, FEDMIA_VENV=venv.path, LACKS=lacks, TORCH=torch)
    assert again.returncode == 0 and not again.stderr and venv.calls() == calls


def test_ready__says_so_where_pip_fails(tmp_path: Path) -> None:
    venv = StubVenv(tmp_path / "venv")
    code = "source tools/env.sh; ready test"
    done = bash(code, FEDMIA_VENV=venv.path, LACKS="[test]", TORCH="2.0")
    assert done.returncode == 1 and "pip could not install" in done.stderr
    assert not [*venv.path.glob("*.stamp")]


def test_newest__is_not_constrained_and_has_an_environment_of_its_own(tmp_path: Path) -> None:
    venv = StubVenv(tmp_path / "venv-newest")
    code = "bash tools/test.sh --newest -k name"
    done = bash(code, FEDMIA_VENV=tmp_path / "venv", LACKS="none", TORCH="2.0")
    assert done.returncode == 0, done.stderr
    install, tests = venv.calls()
    assert install.endswith(f"--constraint /dev/null --editable {ROOT}[test]")
    assert tests.endswith("-k name") and "--newest" not in tests
    assert not (tmp_path / "venv").exists()


def test_probes__find_a_driver_and_an_index(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert bash("source tools/env.sh; has_driver", PATH=path).returncode == 0

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/cpu/torch/" else 404)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for place, code in (("cpu", 0), ("none", 1)):
        url = f"http://127.0.0.1:{server.server_port}/{place}"
        script = f'source tools/env.sh; timeout() {{ shift; "$@"; }}; cpu_builds={url}'
        done = bash(f"{script}; cpu_builds_answer", FEDMIA_VENV=sys.prefix, no_proxy="*")
        assert done.returncode == code, place
    server.shutdown()
    server.server_close()


def test_constraints__name_a_version_of_each_requirement_that_its_pin_allows() -> None:
    lines = [line for line in CONSTRAINTS.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)  # 2.0 is 2.0+cpu, too
    versions = {canonicalize_name(n): v for n, v in (line.split("==") for line in lines)}
    assert len(versions) == len(lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = ("dicom", "docs", "onnx", "tensorboard", "timm", "test", "dev")
    every = [*project["dependencies"], *(line for name in names for line in extras[name])]
    wrong = [
        one for one in map(Requirement, every)
        if canonicalize_name(one.name) != "fedmia"
        and versions.get(canonicalize_name(one.name), "none") not in one.specifier
    ]  # fmt: skip
    assert len(every) > 30 and not wrong


# -- .ci/run ---------------------------------------------------------------------------------

CHECK = """#!/usr/bin/env bash
echo "$(basename "$0") $(basename "${FEDMIA_VENV:-none}") $*" >>"$LOG"
case "$*" in *"$FAILS"*) exit 3 ;; esac
case "$*" in *"$HANGS"*) sleep 600 ;; esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What .ci/run starts, as stubs that tell the log of their environment and arguments."""
    place = tmp_path / "clone"
    shutil.copytree(ROOT / ".ci", place / ".ci")
    scripts = [f"tools/{name}.sh" for name in ("run", "test", "docs")]
    tools = [f"ci/fedmia-ci/KEY/dev/bin/{name}" for name in ("ruff", "mypy", "python")]
    for name in (*scripts, *tools):
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CHECK)
        file.chmod(0o755)
    (place / "tools/env.sh").write_text("venv=$FEDMIA_VENV\nready() { true; }\n")
    for name in ("pyproject.toml", "constraints.txt"):
        (place / name).touch()
    (place / "key").write_text("#!/bin/sh\necho KEY\n")
    (place / "key").chmod(0o755)
    return place


def run_checks(clone: Path, fails: str = "nothing", hangs: str = "nothing") -> tuple[int, str]:
    """The exit code of .ci/run, and its last line."""
    done = bash(
        f"exec {shlex.quote(str(clone / '.ci/run'))}", XDG_CACHE_HOME=clone / "ci",
        PYTHON=clone / "key", LOG=clone / "log", FAILS=fails, HANGS=hangs,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()[-1]


def test_ci__runs_the_commands_of_the_readme_where_linters_are_not(clone: Path) -> None:
    code, last = run_checks(clone)
    assert code == 0 and last.endswith("all passed")
    log = (clone / "log").read_text().splitlines()
    shown = re.findall(r"^bash tools/(run|test)(\.sh.*)$", (ROOT / "README.md").read_text(), re.M)
    assert [name for name, _ in shown] == ["run", "test"]
    for name, rest in shown:
        ran = [re.sub(r"/\S+/RUN", "RUN", line) for line in log]
        assert f"{name}.sh {name} {rest.removeprefix('.sh').strip()}" in ran
    assert {line.split()[1] for line in log if "ruff" in line or "docs.sh" in line} == {"dev"}
    assert {line.split()[1] for line in log if line.startswith("test.sh")} == {"test"}
    assert sum("slow" in line for line in log) == 1


@pytest.mark.parametrize("name", ["--clients", "check", "not pages"])
def test_ci__fails_with_the_step_that_fails(clone: Path, name: str) -> None:
    code, last = run_checks(clone, fails=name)
    assert code == 3 and "failed: " in last


def test_ci__fails_where_its_time_is_over(clone: Path) -> None:
    script = clone / ".ci/run"
    script.write_text(script.read_text().replace("limit=5400", "limit=1"))
    code, last = run_checks(clone, hangs="--clients")
    assert code == 1 and "minutes of all checks are over" in last
