"""Settings: options and their values, plugins by name, strict YAML, paths, flags, and their errors.

A plugin imports what it needs to declare options from here: `from fedmia.settings import option`.
This package imports none of ours and no torch; what each command may be told is in `commands`,
which a module here imports only inside of a function. Start at `options.option`.
"""

from fedmia.settings.options import Options, option

__all__ = ["Options", "option"]
