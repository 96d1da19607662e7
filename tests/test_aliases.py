"""Names before 0.2, which code from outside may still import, are the new ones."""

from __future__ import annotations

import importlib

import pytest

ALIASES = [
    ("clients.desk", "Desk", "clients.client_round", "ClientRound"),
    ("clients.site", "Site", "clients.client_context", "ClientContext"),
    ("clients.site", "Task", "clients.client_context", "RoundTask"),
    ("strategies.crew", "Crew", "strategies.failure_policy", "FailurePolicy"),
    ("strategies.crew", "Against", "strategies.failure_policy", "Adversary"),
    ("strategies.base", "Course", "strategies.base", "RoundRange"),
    ("strategies.base", "cohort", "strategies.base", "draw_cohort"),
    ("fedmia.attacks.base", "Turn", "fedmia.attacks.base", "CraftContext"),
    ("fedmia.threat", "Views", "fedmia.threat", "ViewRecipe"),
    ("fedmia.defenses.base", "Outlook", "fedmia.defenses.base", "PreparationContext"),
    ("fedmia.defenses.base", "Setting", "fedmia.defenses.base", "RunConditions"),
    ("fedmia.partitions.base", "Law", "fedmia.partitions.base", "RandomPartition"),
    ("fedmia.partitions.base", "Owned", "fedmia.partitions.base", "OwnerPartition"),
    ("fedmia.encoders.base", "Loading", "fedmia.encoders.base", "LoadContext"),
    ("fedmia.encoders.base", "Released", "fedmia.encoders.base", "LoadedEncoder"),
    ("fedmia.encoders.base", "Wanted", "fedmia.encoders.base", "LoadOptions"),
    ("fedmia.storage.snapshot", "Local", "fedmia.storage.snapshot", "StrategyContext"),
    ("fedmia.storage.snapshot", "LocalState", "fedmia.storage.snapshot", "ClientState"),
]


@pytest.mark.parametrize(("module", "old", "now", "new"), ALIASES)
def test_alias__is_the_new_name(module: str, old: str, now: str, new: str) -> None:
    assert getattr(importlib.import_module(module), old) is getattr(
        importlib.import_module(now), new
    )
