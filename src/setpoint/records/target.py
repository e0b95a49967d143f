"""A target: something that answers requests."""

from dataclasses import dataclass, field
from enum import StrEnum


class Dialect(StrEnum):
    """The wire dialect of a request."""

    CHAT = "openai-chat"  # POST /v1/chat/completions
    COMPLETIONS = "openai-completions"  # POST /v1/completions
    EMBEDDINGS = "openai-embeddings"  # POST /v1/embeddings
    MESSAGES = "anthropic-messages"  # POST /v1/messages
    RESPONSES = "openai-responses"  # POST /v1/responses


@dataclass(frozen=True, slots=True)
class Target:
    """An address that answers requests in one dialect for one model.

    Attributes:
        base_url: Scheme, host, port and any prefix before ``/v1``, without a trailing slash.
        dialect: Wire dialect.
        model: Model name as the server knows it.
        api_key: Sent as the dialect demands; never recorded, logged or shown.
        metrics_url: Where Prometheus text is served, if anywhere.
        pid: The engine's process, if it runs here and is known.
        verify_tls: False accepts any certificate.
        ca_file: PEM file of an authority to trust beside the system's.
    """

    base_url: str
    dialect: Dialect
    model: str
    api_key: str | None = field(default=None, repr=False)
    metrics_url: str | None = None
    pid: int | None = None
    verify_tls: bool = True
    ca_file: str | None = None
