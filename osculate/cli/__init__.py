"""The command line, ``osculate demo``, ``train``, ``fit``, ``predict``, ``serve``, …: one file for each command."""

import sys as _sys
from collections.abc import Sequence as _Sequence

from osculate.checks import require_library as _require_library


def main(arguments: _Sequence[str] | None = None) -> int:
    """Run one command and return its exit status, see :func:`osculate.cli.app.main`; 2 without the extra ``cli``."""
    try:
        for library in ("jsonargparse", "rich", "yaml"):
            _require_library(library, "the commands")
    except ImportError as error:
        print(f"osculate: error: {error}", file=_sys.stderr)
        return 2
    from osculate.cli import app

    return app.main(arguments)
