"""The command ``a2store``, run as ``python -m a2store``."""

import sys

from ._command import main

if __name__ == "__main__":
    sys.exit(main())
