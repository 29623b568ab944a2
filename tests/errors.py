"""What an error has to say."""

import re


def says(*words: str) -> str:
    """A pattern for ``pytest.raises(match=…)``: the message holds all of these, in any order."""
    return "(?s)" + "".join(f"(?=.*{re.escape(word)})" for word in words)
