"""Many runs at once: side by side, gone on with after an end, and compared by views."""
