"""Options and their values, YAML, errors, plugins by name, random streams: the lowest layer.

Every other package imports it; it imports none of them, and no torch at import. Start at
"""
