"""The bench: attacks on frozen targets, side by side."""
