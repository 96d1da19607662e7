"""What a client does against leakage: one defence a file."""
