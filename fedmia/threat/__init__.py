"""Threat models as objects: an attack gets a view, which grants what its threat model grants.

`BlackBox` embeds images and counts queries. `StoredVectors` has the vectors alone. `WhiteBox` adds
layers and a copy of the model. `ClientView` adds the global models of the rounds in which the
attacker took part, `ServerView` the update that each client sent. A `Shadow` is an encoder that the
attacker trained itself. The views guard against mistakes, not against malicious Python: an attack
that reaches into private attributes leaves the threat model, as any code in one process can.
"""

from fedmia.data.classes import Labels
from fedmia.settings.vantages import VANTAGE, VANTAGES
from fedmia.threat._rows import OUTPUTS, PRECISIONS, Augmentation
from fedmia.threat.blackbox import BlackBox, Shadow
from fedmia.threat.client import ClientView, Trajectory
from fedmia.threat.needs import (
    ACCESS,
    NEGATIVES,
    BudgetError,
    Meter,
    Threat,
    require,
    require_shadows,
)
from fedmia.threat.server import ServerView
from fedmia.threat.stored import Stored, StoredVectors
from fedmia.threat.whitebox import WhiteBox

# Views of the weights by the vantage that they grant.
VIEWS = {view.threat.vantage: view for view in (WhiteBox, ClientView, ServerView)}

__all__ = [
    "ACCESS",
    "NEGATIVES",
    "OUTPUTS",
    "PRECISIONS",
    "VANTAGE",
    "VANTAGES",
    "VIEWS",
    "BlackBox",
    "BudgetError",
    "ClientView",
    "Labels",
    "Meter",
    "ServerView",
    "Shadow",
    "Stored",
    "StoredVectors",
    "Threat",
    "Trajectory",
    "Augmentation",
    "WhiteBox",
    "require",
    "require_shadows",
]
