"""Shadow encoders: what an attacker trains itself, on images whose membership it knows."""
