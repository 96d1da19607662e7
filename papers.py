"""Says where `python -m papers` went."""

import sys

if __name__ == "__main__":
    print("`python -m papers` is now `python -m research.papers`", file=sys.stderr)
    sys.exit(2)
