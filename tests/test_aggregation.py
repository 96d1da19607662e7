"""What the server does with updates: what is refused, what it sees, a whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.settings.commands.experiment import expand_attacks
from tests.commands import fedmia
from tests.small_runs import Killed, in_round, kill, not_repeated, ran, read, resume, simulate

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
def test_refused__in_one_line(flags: str, named: str, tmp_path: Path) -> None:
    done = fedmia(f"simulate {flags}", tmp_path / "RUN")
    assert done.code == 2 and done.err.count("\n") == 1 and named in done.err, done.err
    assert not (tmp_path / "RUN").exists()


def test_secure_aggregation__leaves_the_server_the_models_alone() -> None:
    def threats(attacker: str) -> list[Any]:
        flags = f"--attacker {attacker} --attacks similarity --federation.secure_aggregation "
        return [parse(SIMULATE, [*flags.split(), s]).settings.threat for s in ("false", "true")]

    assert [threat.vantage for threat in threats("server")] == ["server", "client"]
    for attacker in ("active", "none"):
        assert len({repr(threat) for threat in threats(attacker)}) == 1
    named, left = (expand_attacks(("all",), "server", s) for s in (False, True))
    assert set(named) - set(left) == {"all-for-one"} and left


def test_secure_aggregation__is_told_of_the_run(tmp_path: Path) -> None:
    """The report says what its server saw: each update, or the sums alone."""
    flags = (
        f"{TINY.replace('--attack-rounds 1', '')} --attacks none --federation.secure_aggregation"
    )
    views = [ran(f"{flags} {w}", tmp_path / w)["aggregation"]["view"] for w in ("true", "false")]
    assert views == ["sums", "updates"]


@pytest.mark.slow(seconds=15)
def test_run__of_dp_fedavg_goes_on_where_it_stopped(tmp_path: Path) -> None:
    flags = TINY + "--attacker active --attacks ascent --strategy tests.watched:Private "
    flags += "--strategy.epsilon 50 --strategy.adaptive true --attack.ascent.server known "
    flags += "--attack.ascent.pairs 1 --checkpoint-every 0"
    row = ran(flags, tmp_path / "whole")["aggregation"]
    assert row["epsilon"]["value"] == pytest.approx(50) and row["epsilon"]["rounds"] == 3
    assert "Client 4 uploads what an attack crafts" in row["epsilon"]["assumptions"]
    in_round("main", 3, kill)
    with pytest.raises(Killed):
        simulate(flags, tmp_path / "again")
    assert resume(tmp_path / "again") == 0 and not_repeated() == [0, 2]
    assert read(tmp_path / "again")["aggregation"] == row
