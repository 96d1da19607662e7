"""`from fedmia.settings import option`, for plugins: what lives in `fedmia.options`."""

from fedmia.settings.option import Options, option

__all__ = ["Options", "option"]
