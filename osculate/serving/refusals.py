"""An answer other than 200: a status and one sentence as JSON."""

import json


class Refused(Exception):
    """A request that is not served.

    Args:
        status: Status of HTTP.
        sentence: The reason and the way out, without values of the request.
        headers: Headers of the answer by name.
    """

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers or {}

    @property
    def body(self) -> bytes:
        """The answer."""
        return json.dumps({"error": self.sentence}).encode()
