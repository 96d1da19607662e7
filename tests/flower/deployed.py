"""docs/howto/deployment.md, carried out on free ports, in a folder, and all of it ended."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
QUICK = Path(__file__).parent / "quick"
PAGE = (ROOT / "docs" / "howto" / "deployment.md").read_text(encoding="utf-8")


def block(containing: str) -> str:
    """The page's one block of commands that contains a text."""
    results = [b for b in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) if containing in b]
    (one,) = results
    return str(one)


def free_ports(count: int) -> list[str]:
    """Ports of this machine that nobody listens on."""
    with_ = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(s.getsockname()[1]) for s in with_]
    for one in with_:
        one.close()
    return ports


class Deployment:
    """Commands of the page, run in `folder`; a `with` block ends every process that it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "home").mkdir()
        names = ("18000", "19094", "19095", "http", "control")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.running: list[subprocess.Popen[bytes]] = []
        self.env = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{QUICK}{os.pathsep}{ROOT}",
            "FLWR_HOME": str(folder / "home"),
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": self.ports["http"],
            "FLWR_LOCAL_CONTROL_API_PORT": self.ports["control"],
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "OMP_NUM_THREADS": "1",
        }
        (folder / "home" / "config.toml").write_text(
            '[superlink]\ndefault = "local"\n\n[superlink.local]\naddress = ":local:"\n'
        )

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running[::-1]:
            self.end(process)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End what `start` began, with all that it started: it leads a group of its own."""
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.running.remove(process)

    def _script(self, commands: str) -> list[str]:
        for port in ("18000", "19094", "19095"):
            commands = commands.replace(port, self.ports[port])
        return ["bash", "-euc", block("FLWR_TELEMETRY_ENABLED") + commands]

    def do(self, commands: str, cwd: Path | None = None, timeout: float = 60) -> str:
        """Run to the end; what was printed."""
        done = subprocess.run(
            self._script(commands), cwd=cwd or self.folder, env=self.env, timeout=timeout,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}\n{done.stdout[-3000:]}"
        return done.stdout

    def start(self, commands: str, log: str) -> subprocess.Popen[bytes]:
        """Run beside this process, which ends it."""
        with (self.folder / log).open("wb") as file:
            begun = subprocess.Popen(
                self._script("exec " + commands), cwd=self.folder, env=self.env,
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.running.append(begun)
        return begun

    def answers(self, port: str, log: str, patience: float = 60) -> None:
        """Wait until somebody listens on `port`."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", int(self.ports[port]))) == 0:
                    return
            time.sleep(0.2)
        raise AssertionError(f"nobody on {port}\n" + (self.folder / log).read_text()[-3000:])

    def simulate(self) -> None:
        """Start a SuperLink of simulated nodes, the connection `local`, as `flwr run` would; a
        process of ours, so that it is ours to end."""
        server = "flower-superlink --insecure --simulation --host 127.0.0.1 --port "
        self.start(server + self.ports["http"], "superlink.log")
        self.answers("http", "superlink.log")

    def deploy(self) -> None:
        """Start a SuperLink, the connection `deploy`, and two SuperNodes."""
        with (self.folder / "home" / "config.toml").open("a") as file:
            address = f"127.0.0.1:{self.ports['18000']}"
            file.write(f'[superlink.deploy]\naddress = "{address}"\ninsecure = true\n')
        link = "flower-superlink --insecure --host 127.0.0.1 --port 18000"
        self.start(f"{link} --disable-runtime-dependency-installation", "link.log")
        self.answers("18000", "link.log")
        for n, port in enumerate(("19094", "19095")):
            self.start(
                f"flower-supernode --insecure --superlink 127.0.0.1:18000 --port {port} "
                f'--node-config "partition-id={n} num-partitions=2"', f"node{n}.log",
            )  # fmt: skip

    def run(self, command: str, connection: str) -> None:
        """`flwr run`, which exits 0 when the app fails: so its status is asked for."""
        shown = self.do(command, cwd=ROOT, timeout=900)
        listed = self.do(f"flwr list {connection} --format json")
        runs: list[dict[str, Any]] = json.loads(listed)["runs"]
        assert runs[0]["status"] == "finished:completed", f"{runs[0]['status']}\n{shown[-3000:]}"
