"""The command line: flags, help pages, presets and exit codes of every command.

The commands' modules (`fedmia.simulate`, `fedmia.audit`, ..) call it; nothing else does. It reads
`commands.yaml` and an index of the options, so that `--help` imports neither torch nor settings.
Start at `command.run`, which parses, works and turns errors into one line.
"""
