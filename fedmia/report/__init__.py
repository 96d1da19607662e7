"""From scores to numbers, pages and pictures."""
