"""What the report of an audit is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedmia.auditing.harness import Audited
from fedmia.auditing.views import ModelViews
from fedmia.errors import said
from fedmia.results import RunScores, Sweep
from fedmia.runtime.environment import describe
from fedmia.settings.tree import to_tree


def gather(
    views: ModelViews,
    found: Audited,
    swept: Sweep | None,
    pixels: tuple[np.ndarray, np.ndarray],
    useful: list[Any],
    interrupted: bool,
) -> RunScores:
    """All that the report is made of."""
    audit, released, dealt = views.audit, views.released, views.dealt
    environment = describe()
    notes = [said(n, audit.tongue) for n in (*released.notes, *dealt.notes, *found.notes)]
    if len(useful) > 1:
        notes.append(f"The untrained control is {released.untrained_how}.")
    notes.append(
        "Posers are half of the scored non-members, scored as if they were members: an attack "
        "that tells them from the other half reads something else than membership."
    )
    if interrupted:
        notes.append(
            "The audit was interrupted: the attacks, controls and probes that are missing did not "
            "run."
        )
    return RunScores(
        seed=audit.seed,
        subject=f"the encoder {released.name}",
        member_ids=dealt.member_ids,
        nonmember_ids=dealt.nonmember_ids,
        member_client=np.zeros(len(dealt.member_ids), dtype=np.int64),
        member_labels=dealt.member_labels,
        nonmember_labels=dealt.nonmember_labels,
        attacks=found.attacks,
        controls=found.controls,
        pixels=pixels,
        sweep=swept,
        utility=useful[0],
        utility_untrained=useful[1] if len(useful) > 1 else {},
        not_run=found.not_run,
        notes=notes,
        split={"encoder": released.name, "access": released.access} | dealt.counts(),
        config=to_tree(audit) | {"views": vars(views.augment)},
        versions=environment["versions"] | {"commit": environment["commit"]},
        hardware=environment["hardware"],
        timing={"by_attack": {a.name: a.seconds for a in found.attacks}},
    )
