"""Views of studies: one file each."""
