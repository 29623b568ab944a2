"""``python -m osculate`` is ``osculate``."""

import sys

from osculate.cli import main

sys.exit(main())
