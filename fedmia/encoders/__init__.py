"""Encoders that a user brings to an audit: runs, exported programs, models by name."""
