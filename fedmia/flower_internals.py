"""All that is used here of Flower's private modules, which any version of it may move."""

from __future__ import annotations

from flwr.clientapp.typing import ClientAppCallable as ClientAppCallable
from flwr.clientapp.typing import Mod as Mod
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

NODE_UNAVAILABLE: int = ErrorCode.NODE_UNAVAILABLE


def set_identity(node: int) -> None:
    """Set the node that a `Message` of this process comes from, as Flower's own runners do."""
    TaskIdentity.task_id = TaskIdentity.run_id = 1
    TaskIdentity.node_id = node


def identify(node: int) -> None:
    """As `set_identity`, in a process that has no identity yet: Flower's own stays."""
    try:
        _ = TaskIdentity.node_id
    except RuntimeError:
        set_identity(node)
