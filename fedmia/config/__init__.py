"""The settings of every command, one frozen dataclass each, and what suits what."""

__all__: list[str] = []  # pages of these options are `--help`
