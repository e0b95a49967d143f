"""What a client is told when it gets no answer, in its own dialect; never anything of the inside."""

import math

import msgspec

from setpoint.records.target import Dialect

_OPENAI = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    405: "invalid_request_error", 408: "timeout_error", 409: "conflict_error", 411: "invalid_request_error",
    413: "invalid_request_error", 429: "rate_limit_error", 431: "invalid_request_error",
}  # fmt: skip
_ANTHROPIC = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip
REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 413: "Content Too Large", 417: "Expectation Failed",
    422: "Unprocessable Content", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
    504: "Gateway Timeout", 505: "HTTP Version Not Supported",
}  # fmt: skip


class Refusal(Exception):  # noqa: N818 - a decision, with the status that tells it
    """No answer, and why.

    Args:
        status: HTTP status.
        code: Stable word for programs and metrics, e.g. ``tokens_per_minute``.
        message: For people; nothing of a prompt, a key or an address in it.
        retry_after_s: When to try again.

    Attributes:
        within_stream: The head of a stream had been sent before, and an event told it.
    """

    within_stream = False

    def __init__(self, status: int, code: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Response header fields."""
        if self.retry_after_s is not None:
            return [("retry-after", str(max(1, math.ceil(self.retry_after_s))))]
        return [("www-authenticate", "Bearer")] if self.status == 401 else []

    def body(self, dialect: Dialect | None) -> bytes:
        """The error document of a dialect; OpenAI's where none is known."""
        return msgspec.json.encode(_document(self.status, self.code, self.message, dialect))

    def event(self, dialect: Dialect, number: int = 0) -> bytes:
        """The error event that ends a stream of a dialect. Nothing terminal follows it.

        Args:
            dialect: Of the client.
            number: Its place in the stream, where the dialect counts events.
        """
        if dialect is Dialect.RESPONSES:
            told = {"type": "error", "code": self.code, "message": self.message, "param": None}
            data = told | {"sequence_number": number}
            return b"event: error\ndata: " + msgspec.json.encode(data) + b"\n\n"
        document = msgspec.json.encode(_document(self.status, self.code, self.message, dialect))
        return (b"event: error\ndata: " if dialect is Dialect.MESSAGES else b"data: ") + document + b"\n\n"


def _document(status: int, code: str, message: str, dialect: Dialect | None) -> dict[str, object]:
    if dialect is Dialect.MESSAGES:
        return {"type": "error", "error": {"type": _ANTHROPIC.get(status, "api_error"), "message": message}}
    kind = _OPENAI.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def unauthorized() -> Refusal:
    """The one answer to every credential that is missing, unknown, expired, revoked or malformed."""
    return Refusal(401, "invalid_api_key", "No valid credentials were given.")


def unknown_model() -> Refusal:
    """The one answer to a model that does not exist or that the caller may not use."""
    return Refusal(404, "model_not_found", "There is no such model for these credentials.")


def loading(retry_after_s: float) -> Refusal:
    """No engine of the model answered within the time that requests are held for one."""
    return Refusal(503, "loading", "The model is loading.", retry_after_s=max(1.0, retry_after_s))


def no_capacity(retry_after_s: float, code: str = "capacity") -> Refusal:
    """No replica can take the request in time."""
    return Refusal(503, code, "The model has no capacity at the moment.", retry_after_s=max(1.0, retry_after_s))
