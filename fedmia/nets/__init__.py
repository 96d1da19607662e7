"""Encoders: one family a file, each a backbone with named stages and explicit weights."""
