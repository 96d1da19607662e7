"""Where the papers' templates lie: `fedmia.report.page.templates` reads them beside its own."""

from __future__ import annotations

from pathlib import Path

TEMPLATES = Path(__file__).with_name("templates")
