"""What this project found out, and what it ran to find it: in a clone alone, never installed."""
