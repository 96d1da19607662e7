"""Who is told of a run as it goes: one experiment tracker a file."""
