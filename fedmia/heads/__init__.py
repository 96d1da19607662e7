"""Released classification heads: noised, attacked, and what that costs (Yang et al., 2022)."""
