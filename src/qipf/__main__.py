"""`python -m qipf`."""

import sys

from qipf.cli import main

sys.exit(main())
