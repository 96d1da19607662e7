"""The name of `clients.client_context` before 0.2, for code from outside."""

from clients.client_context import ClientContext as Site
from clients.client_context import RoundTask as Task

__all__ = ["Site", "Task"]
