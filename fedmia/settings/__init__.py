"""Options, values, YAML, flags and help of every command; what suits what."""
