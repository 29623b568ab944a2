"""The outcome of a case: it agrees, is refused in a sentence, is wrong, or ends in a raw exception."""

import traceback
from pathlib import Path

import osculate
from tests.fuzz.cases import Case, random_case
from tests.fuzz.operations import OPERATIONS, Wrong, run

PACKAGE = str(Path(osculate.__file__).parent)
WEIGHTS = {name: weight for name, (_, weight) in OPERATIONS.items()}
AGREES, REFUSED, WRONG, RAW = "agrees", "refused", "wrong", "raw exception"
FAILURES = (WRONG, RAW)
#: Errors by which the package refuses.
SENTENCES = (ValueError, TypeError, RuntimeError)


def outcome(seed: int) -> tuple[Case, str, str]:
    """The case of a seed, its outcome, and what was said."""
    case = random_case(seed, WEIGHTS)
    try:
        run(case)
    except Wrong as wrong:
        return case, WRONG, str(wrong)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raised = place.filename.startswith(PACKAGE) and (place.line or "").startswith("raise ")
        own = raised and isinstance(error, SENTENCES) and " " in str(error)
        return case, REFUSED if own else RAW, f"{type(error).__name__}: {error}"
    return case, AGREES, ""
