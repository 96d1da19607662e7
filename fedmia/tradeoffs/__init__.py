"""Defences at several strengths beside each other: what still leaks, and what use is left."""
