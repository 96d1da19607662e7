"""The pictures of a report, as PNG."""
