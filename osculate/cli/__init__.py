"""The command line: ``osculate demo | train | fit | predict | evaluate | reconstruct``. One file for each command."""

import sys
from collections.abc import Sequence

from osculate import checks


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status, see :func:`osculate.cli.app.main`; 2 without the extra ``cli``."""
    try:
        for library in ("jsonargparse", "rich", "yaml"):
            checks.require_library(library, "the commands")
    except ImportError as error:
        print(f"osculate: error: {error}", file=sys.stderr)
        return 2
    from osculate.cli import app

    return app.main(arguments)
