"""What the attacker of a federation sees of its models, and notes while the rounds pass."""
