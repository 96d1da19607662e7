"""Audits of a federation use what audits of an encoder do."""

from tests.auditing.conftest import archives, audit

__all__ = ["archives", "audit"]
