"""The gateway's configuration: models and their replicas, who may call, how much, and how long things may take."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from setpoint.gateway.values import Bytes, Name, ZmqAddress
from setpoint.records.target import Dialect
from setpoint.workload.quantity import Duration, Flag, Number, Refused, Share, Tokens, Whole

API_VERSION = "setpoint/v1"
RENEWALS = 3  # of a lease in Redis, before it would end
Dialects = Literal["chat", "completions", "embeddings", "messages", "responses"]
DIALECTS: dict[str, Dialect] = {
    "chat": Dialect.CHAT,
    "completions": Dialect.COMPLETIONS,
    "embeddings": Dialect.EMBEDDINGS,
    "messages": Dialect.MESSAGES,
    "responses": Dialect.RESPONSES,
}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


class Tls(_Part):
    """Server certificate.

    Attributes:
        certificate: PEM file of the chain; read again on reload and when it changes.
        key: PEM file of the private key.
        client_ca: PEM file of the authority whose client certificates are accepted.
        client_certificates: ``required`` ends the handshake of a client without one; ``optional`` leaves it to its key.
    """

    certificate: str
    key: str
    client_ca: str | None = None
    client_certificates: Literal["required", "optional"] = "required"


class Listen(_Part):
    """Where clients connect.

    Attributes:
        host: Address to bind.
        port: TCP port; 0 takes a free one.
        tls: Serve HTTPS.
        max_connections: Open client connections a worker process.
    """

    host: str = "127.0.0.1"
    port: Whole = Field(default=8080, ge=0, le=65535)
    tls: Tls | None = None
    max_connections: Whole = Field(default=8192, ge=1, le=1_000_000)


class Limits(_Part):
    """What one tenant or key may use. Absent is no limit.

    Attributes:
        requests_per_minute: Requests admitted in a minute; the allowance refills evenly.
        tokens_per_minute: Prompt and completion tokens in a minute; refills evenly.
        tokens_per_day: The same in a UTC day.
        streams: Requests under way at once.
        max_output: Longest answer that may be asked for.
        max_context: Longest prompt, estimated before dispatch.
    """

    requests_per_minute: Whole | None = Field(default=None, ge=1)
    tokens_per_minute: Tokens | None = Field(default=None, ge=1)
    tokens_per_day: Tokens | None = Field(default=None, ge=1)
    streams: Whole | None = Field(default=None, ge=1)
    max_output: Tokens | None = Field(default=None, ge=1)
    max_context: Tokens | None = Field(default=None, ge=1)


class Tenant(_Part):
    """Who is served.

    Attributes:
        limits: Over all keys of the tenant.
        weight: Share of a busy model relative to other tenants.
        models: Models it may use; absent is all.
        priority: Class of its requests unless they ask for a lower one.
    """

    limits: Limits = Limits()
    weight: Number = Field(default=1.0, gt=0, le=1000)
    models: tuple[Name, ...] | None = None
    priority: Literal["interactive", "batch"] = "interactive"


class Jwt(_Part):
    """Bearer tokens of an identity provider.

    Attributes:
        issuer: ``iss`` that a token must carry.
        audience: ``aud`` that a token must carry.
        jwks: File or URL of the provider's keys.
        jwks_ttl: How long fetched keys are used before they are fetched again.
        algorithms: Signature algorithms that are accepted; symmetric ones are not.
        tenant_claim: Claim that names the tenant.
        leeway: Clock difference that is tolerated.
    """

    issuer: str = Field(min_length=1)
    audience: str = Field(min_length=1)
    jwks: str = Field(min_length=1)
    jwks_ttl: Duration = 300.0
    algorithms: tuple[Literal["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "EdDSA"], ...] = ("RS256",)
    tenant_claim: str = "sub"
    leeway: Duration = 30.0


class Auth(_Part):
    """Who may call. Without a key and without a token nobody is served.

    Attributes:
        anonymous: Tenant of callers without credentials; only where the gateway listens on this machine alone.
        jwt: Tokens of an identity provider.
        certificates: Tenants by a name in a client's certificate: a DNS name, URI or mail address, or the common name
            of one without any of these; exactly as it stands there.
        undeclared_tenants: Whether a tenant that the configuration does not name is served, without limits of its own.
    """

    anonymous: Name | None = None
    jwt: Jwt | None = None
    certificates: dict[str, Name] = Field(default_factory=dict)
    undeclared_tenants: Flag = False


class KvEvents(_Part):
    """KV cache events of a vLLM engine: what its prefix cache holds is then known, not believed.

    Each prompt is tokenized by the engine before it is routed, so that it can be compared with the events' token ids.

    Attributes:
        endpoint: ZMQ address of the events, such as ``tcp://10.0.0.5:5557``.
        replay: ZMQ address at which missed events are asked for; without it a gap makes what is known be forgotten.
        topic: Topic that the engine was told to publish under.
        tokenize_timeout: How long a request waits for its token ids; beyond it the believed prefix decides.
    """

    endpoint: ZmqAddress
    replay: ZmqAddress | None = None
    topic: str = ""
    tokenize_timeout: Duration = 0.25


class Replica(_Part):
    """One engine.

    Attributes:
        url: Base URL.
        name: In metrics and records; taken from the address unless given.
        model: Name of the model at the engine; the model's own name unless given.
        weight: Share relative to other replicas for policies that know shares.
        max_in_flight: Requests sent to it at once; the rest waits in the gateway, in order of class and share.
        kv_tokens: Tokens that its prefix cache holds; vLLM's own figure, where smaller, is read from its metrics.
        api_key_env: Environment variable that holds the engine's key.
        ca_file: PEM file of an authority to trust.
        metrics_url: Prometheus text of the engine; with it the policy knows load from elsewhere.
        kv_events: What the engine tells of its prefix cache.
        engine: What the engine is, as metrics and spans say it.
        engine_version: Its version, likewise.
        engine_config: Hash of its model, flags and environment, likewise.
    """

    url: str
    name: Name | None = None
    model: str | None = None
    weight: Number = Field(default=1.0, gt=0, le=1000)
    max_in_flight: Whole = Field(default=64, ge=1, le=100_000)
    kv_tokens: Tokens = Field(default=262_144, ge=1024)
    api_key_env: str | None = None
    ca_file: str | None = None
    metrics_url: str | None = None
    kv_events: KvEvents | None = None
    engine: str | None = None
    engine_version: str | None = None
    engine_config: str | None = None


class Timeouts(_Part):
    """Limits of each phase; none is stretched over another.

    Attributes:
        connect: TCP and TLS to an engine.
        first_byte: From dispatch to the engine's first byte; minutes of hidden reasoning are normal.
        gap: Silence of the engine within an answer.
        total: The whole exchange.
        ping: Silence towards a streaming client after which it gets a ping in its dialect; 0 sends none.
    """

    connect: Duration = 5.0
    first_byte: Duration = 600.0
    gap: Duration = 300.0
    total: Duration = 7200.0
    ping: Duration = 15.0


class Health(_Part):
    """How replicas are watched.

    Attributes:
        canary: Time between canary requests of one token; 0 sends none.
        canary_timeout: A canary without an answer by then is a failure.
        failures: Failures in a row after which a replica gets no requests.
        cooldown: Time until an ejected replica is tried again; doubles with each ejection up to ten times as long.
    """

    canary: Duration = 10.0
    canary_timeout: Duration = 30.0
    failures: Whole = Field(default=3, ge=1, le=1000)
    cooldown: Duration = 5.0


class Retries(_Part):
    """Second attempts on another replica, before the first byte only.

    Attributes:
        attempts: Attempts of one request in all.
        budget: Retries as a share of requests; beyond it failures are passed on, so that no storm forms.
        repair: What counts as a failure too, where nothing of it was passed on yet: an empty answer, or one that spent
            all its tokens on reasoning. Such an attempt was paid for at the engine; the next one is too.
    """

    attempts: Whole = Field(default=2, ge=1, le=10)
    budget: Share = 0.1
    repair: tuple[Literal["empty", "reasoning_exhausted"], ...] = ()


class Queue(_Part):
    """Requests that wait for a replica, by class.

    Attributes:
        size: Waiting requests of a class in one worker process; one more is answered 503.
        interactive_wait: How long an interactive request may wait.
        batch_wait: How long a batch request may wait.
        loading_wait: How long a request waits for a model that is loading.
    """

    size: Whole = Field(default=256, ge=0, le=1_000_000)
    interactive_wait: Duration = 30.0
    batch_wait: Duration = 600.0
    loading_wait: Duration = 60.0


class Routing(_Part):
    """How a replica is chosen.

    Attributes:
        policy: ``prefix`` follows cached prefixes within a load window; the others exist for comparison.
        window_tokens: Queued and uncached tokens above the least loaded replica at which a cached prefix still counts.
        bound: Bounded-load factor: no cold prefix lands on a replica above this multiple of the mean load.
    """

    policy: Literal["prefix", "round-robin", "least-loaded", "random"] = "prefix"
    window_tokens: Tokens = 4096
    bound: Number = Field(default=1.25, ge=1, le=10)


class Service(_Part):
    """How a model is served, wherever its engines are.

    Attributes:
        aliases: Other names of it.
        fallbacks: Models tried in order when this one has no replica that answers.
        dialects: Dialects that its engines speak.
        cache_salt: Whether its engines are told the tenant's cache salt.
        default_output: Tokens reserved for an answer whose request names no limit.
        timeouts: Limits in time.
        retries: Second attempts.
        queue: Waiting.
        routing: Choice of a replica.
        health: Watch over the replicas.
    """

    aliases: tuple[Name, ...] = ()
    fallbacks: tuple[Name, ...] = ()
    dialects: tuple[Dialects, ...] = ("chat", "completions", "embeddings")
    cache_salt: Flag = True
    default_output: Tokens = Field(default=1024, ge=1)
    timeouts: Timeouts = Timeouts()
    retries: Retries = Retries()
    queue: Queue = Queue()
    routing: Routing = Routing()
    health: Health = Health()


class Model(Service):
    """A model that clients can name.

    Attributes:
        replicas: Engines that serve it.
        split: Weights of other models among which requests are shared out; a model with a split has no replicas.
    """

    replicas: tuple[Replica, ...] = ()
    split: dict[Name, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.replicas) == bool(self.split):
            raise Refused([(("replicas",), None, "either replicas or a split over other models")])
        return self


class Http(_Part):
    """Bounds of what a client may send.

    Attributes:
        max_header: Request line and header fields.
        max_body: One request body; prompts of megabytes are normal.
        max_buffered: Bodies held at once by one worker process.
        header_timeout: From the first byte of a request to the end of its header.
        body_timeout: Silence within a body.
        idle_timeout: A connection without a request.
        write_timeout: How long a client may leave what was sent to it unread.
    """

    max_header: Bytes = 32 * 2**10
    max_body: Bytes = 64 * 2**20
    max_buffered: Bytes = 2**30
    header_timeout: Duration = 10.0
    body_timeout: Duration = 30.0
    idle_timeout: Duration = 75.0
    write_timeout: Duration = 60.0


class Idempotency(_Part):
    """Requests that carry an ``Idempotency-Key``.

    Attributes:
        window: How long an answered key stands for its answer.
        max_answer: Largest document that is kept to be said again; streams are not kept.
        memory: Documents kept at once by one worker process, in memory alone.
    """

    window: Duration = 3600.0
    max_answer: Bytes = 64 * 2**10
    memory: Bytes = 16 * 2**20


class Admin(_Part):
    """The administrative address.

    Attributes:
        host: Address to bind; one that other machines reach needs a key with the ``admin`` scope on every request.
        port: TCP port; 0 takes a free one.
        open: Serve status, usage and metrics without a key; only on this machine alone.
    """

    host: str = "127.0.0.1"
    port: Whole = Field(default=8081, ge=0, le=65535)
    open: Flag = True


class Redis(_Part):
    """Limits and idempotency keys that hold across machines.

    Attributes:
        url_env: Environment variable that holds the URL (redis:// or rediss://).
        secret_env: Environment variable that holds a secret of at least 32 characters, the same one at all gateways
            that share this Redis: it keys the hashes of idempotency keys, and the tenants' cache salts.
        prefix: Of every key.
        timeout: Of one command; beyond it requests are refused, not let through.
        idempotency_lease: How long a key whose request was under way stays taken once its gateway has died.
        idempotency_answers: Keep answers there, encrypted with a key derived from the secret, so that every worker of
            every gateway can say them again; otherwise only the worker that gave one can.
    """

    url_env: str = Field(min_length=1)
    secret_env: str = Field(min_length=1)
    prefix: str = "setpoint"
    timeout: Duration = 1.0
    idempotency_lease: Duration = 30.0
    idempotency_answers: Flag = False


class Front(_Part):
    """Everything of a gateway but its models.

    Attributes:
        tenants: By name.
        idempotency: What a request is that carries a key of its client's.
        workers: Processes; one a core unless given.
        state: Folder of keys, usage and journals.
        drain: How long open answers may go on after the gateway was told to end.
        empty_answers: Whether an answer with nothing in it is passed on or reported as an error.
        access_log: File that gets one line for each exchange, without any text; absent writes none.
        telemetry: Send a span of each exchange to the OTLP endpoint that ``OTEL_EXPORTER_OTLP_ENDPOINT`` names.
        usage_url_env: Environment variable with a PostgreSQL URL for usage; SQLite in the state folder unless given.
    """

    api_version: Literal["setpoint/v1"] = Field(alias="apiVersion")
    tenants: dict[Name, Tenant] = Field(default_factory=dict)
    auth: Auth = Auth()
    listen: Listen = Listen()
    admin: Admin = Admin()
    http: Http = Http()
    idempotency: Idempotency = Idempotency()
    redis: Redis | None = None
    workers: Whole | None = Field(default=None, ge=1, le=64)
    state: str = ".setpoint/gateway"
    drain: Duration = 60.0
    empty_answers: Literal["error", "pass"] = "error"
    access_log: str | None = None
    telemetry: Flag = False
    usage_url_env: str | None = None


class Gateway(Front):
    """The whole file.

    Attributes:
        models: By the name that clients use.
    """

    kind: Literal["Gateway"]
    models: dict[Name, Model] = Field(min_length=1)
