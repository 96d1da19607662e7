"""What an option is, its values, YAML, errors, plugins by name, random streams: the lowest floor.

It imports nothing else of ours, and no torch. Start at `option.py`.
"""
