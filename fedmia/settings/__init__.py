"""What a plugin needs to declare options: `from fedmia.settings import option`.

Plugins inside and outside of fedmia import it. The code lives in `fedmia.options`; start at
`fedmia/options/option.py`.
"""

from fedmia.options.option import Options, option

__all__ = ["Options", "option"]
