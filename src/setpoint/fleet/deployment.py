"""The deployment file: which models are served by which engines on this machine, and the gateway in front of them."""

from hashlib import sha256
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from setpoint.gateway.config import Dialects, Front, Service
from setpoint.gateway.values import Name
from setpoint.workload.quantity import Duration, Field_, Flag, Refused, Tokens, Whole

EngineName = Literal["llamacpp", "vllm", "fake", "remote"]


def _flags(value: object) -> dict[str, str]:
    """Flags as an engine's command line takes them."""
    if not isinstance(value, dict):
        raise Refused([((), None, "a mapping of flags such as n_ctx: 8192")])
    bad: list[tuple[Field_, str | None, str]] = [
        ((str(name),), None, "text, a number, true or false")
        for name, one in value.items()
        if not isinstance(one, str | int | float)
    ]
    if bad:
        raise Refused(bad)
    return {str(n).lstrip("-"): str(v).lower() if isinstance(v, bool) else str(v) for n, v in value.items()}


Flags = Annotated[dict[str, str], BeforeValidator(_flags)]


class RestartPolicy(BaseModel):
    """What happens when an engine that has answered before dies. The words are those of Docker Compose.

    Attributes:
        condition: ``on-failure`` starts it again, ``none`` leaves it down.
        delay: Before the first restart; doubles with each further one.
        max_attempts: Restarts in a row; after the last its replica stays down.
        window: A replica that has answered for so long has recovered: its restarts count anew.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    condition: Literal["on-failure", "none"] = "on-failure"
    delay: Duration = 1.0
    max_attempts: Whole = Field(default=3, ge=1, le=100)
    window: Duration = 120.0


class ServedModel(Service):
    """A model and the engines that serve it; beside these fields all that the gateway knows of a model.

    Attributes:
        model: Embedded name, path or hf://org/name[@revision]; of a remote engine, its name there. The model's own name
            unless given.
        engine: What serves it; ``remote`` is started by somebody else.
        flags: Of the engine.
        replicas: Engines of it on this machine.
        min_replicas: 0 starts its engines upon the first request; absent starts them at once.
        idle_stop: Without a request for so long its engines are ended again; absent leaves them. With min_replicas 0.
        port: Of the first replica on 127.0.0.1, the next ones follow; free ones unless given.
        start_timeout: From the launch of an engine to its first token; the engine's own limit unless given.
        load_time: What a load is expected to take until one was observed.
        restart_policy: When an engine dies.
        max_in_flight: Requests sent to a replica at once; as many as its flags give slots unless given.
        kv_tokens: Tokens that a replica's cache holds; as its flags say, or as it reports, unless given.
        kv_events: Whether the gateway follows what each engine tells of its prefix cache.
        urls: Base URLs of remote engines.
        api_key_env: Variable with the key of remote engines.
    """

    model: str | None = None
    engine: EngineName = "llamacpp"
    flags: Flags = Field(default_factory=dict)
    replicas: Whole = Field(default=1, ge=1, le=64)
    min_replicas: Whole | None = Field(default=None, ge=0, le=64)
    idle_stop: Duration | None = None
    port: Whole | None = Field(default=None, ge=1, le=65535)
    start_timeout: Duration | None = None
    load_time: Duration = 0.0
    restart_policy: RestartPolicy = RestartPolicy()
    max_in_flight: Whole | None = Field(default=None, ge=1, le=100_000)
    kv_tokens: Tokens | None = Field(default=None, ge=1024)
    kv_events: Flag = False
    urls: tuple[str, ...] = ()
    api_key_env: str | None = None

    @property
    def remote(self) -> bool:
        """Whether somebody else starts its engines."""
        return self.engine == "remote"

    @property
    def on_demand(self) -> bool:
        """Whether its engines wait for the first request."""
        return self.min_replicas == 0

    @property
    def spoken(self) -> tuple[Dialects, ...]:
        """Dialects of its engines: as declared, else what the engine speaks under its flags."""
        if "dialects" in self.model_fields_set or self.remote:
            return self.dialects
        if self.engine == "fake":
            return ("chat", "completions", "embeddings", "messages")
        return ("embeddings",) if self.flags.get("embedding") == "true" else ("chat", "completions")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        wrong: list[tuple[Field_, str | None, str]] = []
        if self.remote:
            local = (
                "flags", "replicas", "min_replicas", "idle_stop", "port", "load_time", "restart_policy", "kv_events",
            )  # fmt: skip
            if not self.urls:
                wrong.append((("urls",), None, "the base URLs of the remote engines"))
            wrong += [
                ((name,), None, "nothing: a remote engine is not started here")
                for name in local
                if name in self.model_fields_set
            ]
        else:
            wrong += [
                ((name,), None, f"nothing with engine {self.engine}; it is for engine remote")
                for name in ("urls", "api_key_env")
                if name in self.model_fields_set
            ]
        if self.min_replicas not in (None, 0, self.replicas):
            wrong.append((("min_replicas",), None, f"0 or nothing ({self.replicas} replicas run or none does)"))
        if self.idle_stop is not None and not self.on_demand:
            wrong.append((("idle_stop",), None, "nothing unless min_replicas is 0"))
        if self.idle_stop is not None and self.idle_stop <= 0:
            wrong.append((("idle_stop",), None, "a duration above zero"))
        if wrong:
            raise Refused(wrong)
        return self


class Deployment(Front):
    """The whole file: models with their engines, and everything else that a gateway can be told.

    Attributes:
        models: By the name that clients use.
    """

    kind: Literal["Deployment"]
    models: dict[Name, ServedModel] = Field(min_length=1)

    def digest(self) -> str:
        """Of the content; it names secrets' variables and never holds one."""
        return sha256(self.model_dump_json().encode()).hexdigest()[:12]
