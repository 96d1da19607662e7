"""Files of strangers: each format has one reader here, which bounds what it reads.

Whoever opens a file that a user names asks here first; `filetype` says what is no such file at all.
"""
