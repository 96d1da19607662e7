"""The audit of one encoder: options, images and their roles, attacks and controls, what is kept."""
