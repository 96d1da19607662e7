"""What a run notes before its first round."""

from __future__ import annotations

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.federation.plan import make_plan
from fedmia.settings.errors import InputError

TINY = (
    "--dataset synthetic --data.pixels 8 --data.images 90 --data.classes 2 --clients 1 --rounds 1 "
    "--split.members 16 --split.known 4 --attacks none --model.width 4 "
)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--model.norm batch", True),
        ("--model.norm split", True),
        ("--ssl byol --ssl.head_norm none --model.norm batch", True),
        ("--ssl byol", True),  # batch norm in both heads, as in the paper
        ("--ssl simclr --ssl.head_norm batch", True),
        ("--ssl byol --ssl.head_norm layer", False),
        ("--ssl simclr", False),
        ("", False),
    ],
)
def test_notes__local_batch_norm_wherever_the_model_holds_one(flags: str, said: bool) -> None:
    for policy in ("local", "average"):
        line = TINY + flags + f" --federation.batch_norm {policy}"
        if policy == "local" and not said:
            with pytest.raises(InputError, match="batch_norm local has no effect"):
                parse(SIMULATE, line.split())
            continue
        experiment = parse(SIMULATE, line.split()).settings
        assert experiment is not None
        results = [n for n in make_plan(experiment).notes if n.code == "local-batch-norm"]
        assert len(results) == (said and policy == "local")
