"""The commands that `commands.yaml` declares, in the form of those of `fedmia`."""

from __future__ import annotations

from pathlib import Path

from fedmia.cli.commands import read_commands

COMMANDS = read_commands(Path(__file__).with_name("commands.yaml"))
TABLES, HEAD, RUN = COMMANDS["tables"], COMMANDS["head"], COMMANDS["run"]
PROTOCOLS = COMMANDS["protocols"]
