"""The settings of every command, one frozen dataclass each, and what suits what."""
