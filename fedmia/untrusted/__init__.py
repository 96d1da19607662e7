"""Files of strangers: what they are, how far they may unfold, their text and archives.

Whoever opens a file that a user names asks here first. Start at `limits`.
"""
