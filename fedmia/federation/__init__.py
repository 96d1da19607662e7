"""The rounds of a federation over Flower, and what they leave behind."""
