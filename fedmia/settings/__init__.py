"""Options, values, YAML, flags and help of every command; what suits what."""

from fedmia.settings.option import Options, option

__all__ = ["Options", "option"]
