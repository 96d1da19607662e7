"""What the server does with updates: what is refused, what it sees, a whole run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from fedmia import simulate as command
from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.federation.checkpoint import Checkpoint
from fedmia.federation.schedule import Schedule
from fedmia.report.lowerbounds import with_bounds
from fedmia.settings.commands.experiment import expand_attacks
from fedmia.settings.commands.roles import granted_threat, refusal
from fedmia.settings.registry import load
from fedmia.simulate import main
from tests.equivalence.conftest import federated, planned
from tests.small_runs import Killed, kill, ran, read, resume, simulate

TINY = (
    "--clients 5 --train.local_epochs 1 --model.width 2 --split.members 30 --split.nonmembers 40 "
    "--split.known 6 --split.test 20 --device cpu --federation.snapshots 1 --rounds 3 "
    "--attack-rounds 1 --quiet "
)
SECURE = "--federation.secure_aggregation true"


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--clients 4 --strategy krum", "needs >= 5 clients a round, got 4"),
        ("--strategy krum --strategy.malicious 4", "needs >= 11 clients a round, got 10"),
        ("--strategy krum --federation.participation 0.4", "needs >= 5 clients a round, got 4"),
        ("--strategy trimmed-mean --strategy.trim 5", "needs >= 11 clients a round, got 10"),
        ("--strategy multi-krum --strategy.keep 11", "needs >= 11 clients a round, got 10"),
        ("--strategy median --clients 2", "needs >= 3 clients a round, got 2"),
        ("--strategy norm-clip --strategy.clip 0", "strategy.clip: 0.0, must be > 0"),
        ("--strategy norm-clip --model.norm batch", "running statistics of batch norm"),
        ("--strategy dp-fedavg --model.norm batch", "running statistics of batch norm"),
        ("--strategy dp-fedavg --strategy.epsilon 0", "strategy.epsilon: 0.0, must be > 0"),
        ("--strategy dp-fedavg --strategy.delta 1", "strategy.delta: 1.0, must be < 1"),
        ("--strategy dp-fedavg --strategy.weighting examples", "strategy.weighting"),
        ("--strategy dp-fedavg --strategy.cohorts open", "strategy.cohorts: unknown value"),
        (
            "--strategy dp-fedavg --pretrain pooled --pretrain.epochs 1",
            "pretrain.mode (--pretrain) pooled with",
        ),
        (f"--strategy krum {SECURE}", "strategy krum looks at single updates"),
        (f"--strategy dp-fedavg {SECURE}", "strategy dp-fedavg looks at single updates"),
        (f"--attacker server --attacks all-for-one {SECURE}", "reads each client's own update"),
        (f"{SECURE} --federation.keep_updates 2", "federation.keep_updates 2 keeps single"),
    ],
)
def test_refused__in_one_line(
    flags: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(command, "train", lambda *_, **__: pytest.fail("not refused"))
    assert main([*shlex.split(flags), "--out", str(tmp_path / "RUN")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and named in err, err


def test_course__knows_whom_a_statement_leaves_out() -> None:
    """The plan of dp-fedavg rests on whom its account leaves out."""
    flags = ["--attacker", "active", "--malicious", "2", "--clients", "7"]
    settings = parse(SIMULATE, flags).settings
    phase = Schedule(settings).phase("main", 0, 3, craft=False)
    assert phase.malicious == settings.malicious_clients and len(phase.malicious) == 2


def test_secure_aggregation__leaves_the_server_the_models_alone() -> None:
    whole, sums = granted_threat("server"), granted_threat("server", True)
    assert (whole.vantage, sums.vantage) == ("server", "client")
    for attacker in ("active", "none"):
        assert granted_threat(attacker, True) == granted_threat(attacker)
    named, left = (expand_attacks(("all",), "server", s) for s in (False, True))
    assert set(named) - set(left) == {"all-for-one"} and left
    assert refusal(load("attack", "all-for-one"), "server") is None


def test_secure_aggregation__is_told_of_the_run(tmp_path: Path) -> None:
    """The report says what its server saw: each update, or the sums alone."""
    views = {}
    for secure in ("true", "false"):
        flags = f"--clients 2 --rounds 1 --federation.secure_aggregation {secure} --attacks none"
        done = federated(planned(flags), tmp_path / secure).aggregation
        assert done is not None
        views[secure] = with_bounds(done, 1).view
    assert views == {"true": "sums", "false": "updates"}


@pytest.mark.slow(seconds=15)
def test_run__of_dp_fedavg_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = TINY + "--attacker active --attacks ascent --strategy dp-fedavg --strategy.epsilon 50 "
    flags += "--strategy.adaptive true --attack.ascent.server known --attack.ascent.pairs 1 "
    flags += "--checkpoint-every 0"
    row = ran(flags, tmp_path / "whole")["aggregation"]
    assert row["epsilon"]["value"] == pytest.approx(50) and row["epsilon"]["rounds"] == 3
    assert "Client 4 uploads what an attack crafts" in row["epsilon"]["assumptions"]
    write, calls = Checkpoint.write, list[int]()

    def dies(self: Checkpoint, *parts: Any) -> None:
        write(self, *parts)
        calls.append(1)
        if len(calls) == 3:
            kill()

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Checkpoint, "write", dies)
        simulate(flags, tmp_path / "again")
    assert resume(tmp_path / "again") == 0
    assert read(tmp_path / "again")["aggregation"] == row
