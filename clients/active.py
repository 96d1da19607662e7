"""An active attacker: passive until told to craft, then uploads what its attack crafts."""

from __future__ import annotations

import torch

from clients.base import Desk, Role
from fedmia import registry
from fedmia.ssl.base import State


class Active(Role):
    """Trains, then ascends its targets' loss (Algorithm 1 of Chen et al.) and uploads that."""

    def work(self, desk: Desk) -> tuple[State, dict[str, float]]:
        if desk.site.attacker_trains:
            upload, metrics, method = desk.train()
        else:
            upload, metrics, method = desk.received, {}, desk.idle()
        attack = desk.site.attack
        if not desk.task.craft or attack is None:
            return upload, metrics
        if desk.task.branch == "zero":
            attack = attack.disarmed()
        method.eval()  # as the losses are read later
        if attack.negatives == "held":
            method.load_shared(desk.received)
            held = torch.from_numpy(desk.site.images[desk.site.held])
            method.fill_bank(held.to(desk.site.device).float() / 255)
        targets = torch.from_numpy(desk.site.images[desk.site.targets])
        turn = int(desk.task.options["turn"])
        picked = torch.from_numpy(attack.chosen(targets, turn))
        augment = registry.build("ssl", *desk.site.ssl).augment
        crafted = attack.craft(
            method, desk.received, upload, targets[picked], augment, desk.stream("craft")
        )
        return crafted, metrics
