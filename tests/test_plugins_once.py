"""A plugin that settings choose: whoever may change it has a copy of it."""

from __future__ import annotations

from fedmia.settings.commands.experiment import PluginChoice


def test_choice__copies_what_may_take_on_a_state() -> None:
    choice = PluginChoice("fedavgm", {"server_lr": 0.5})
    one, two = choice.build("strategy"), choice.build("strategy")
    assert one is not two and choice.plugin("strategy") is choice.plugin("strategy")
    one.server_lr = 9.0
    assert two.server_lr == choice.plugin("strategy").server_lr == 0.5
    other = choice.with_options("strategy", {**choice.complete("strategy").options, "server_lr": 2})
    assert (other.plugin("strategy").server_lr, choice.plugin("strategy").server_lr) == (2, 0.5)
