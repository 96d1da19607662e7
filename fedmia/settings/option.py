"""`from fedmia.settings.option import option`, for plugins: what lives in `fedmia.options`."""

from fedmia.options.option import Options, option

__all__ = ["Options", "option"]
