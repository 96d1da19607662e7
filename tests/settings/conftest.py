"""Settings of studies, as a command line gives them."""

from __future__ import annotations

import shlex

from fedmia.cli.command import parse
from fedmia.cli.commands import STUDY
from fedmia.settings.commands.study import Study


def built(line: str) -> Study:
    settings = parse(STUDY, shlex.split(line)).settings
    assert isinstance(settings, Study)
    return settings
