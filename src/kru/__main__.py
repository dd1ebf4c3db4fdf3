"""`python -m kru` is `kru`."""

import sys

from kru_command import main

if __name__ == "__main__":
    sys.exit(main())
