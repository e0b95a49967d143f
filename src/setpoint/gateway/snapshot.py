"""What a configuration in force amounts to; a reload makes a new one, and requests under way keep theirs."""

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from setpoint.gateway.config import DIALECTS, Gateway, Model, Timeouts
from setpoint.gateway.demand import Demand
from setpoint.gateway.gate import Gate
from setpoint.gateway.identity import Authenticator, Identity, TokenVerifier
from setpoint.gateway.keys import KeyStore
from setpoint.gateway.refusal import unknown_model
from setpoint.gateway.replica import Replica
from setpoint.gateway.shared import SharedTable, TableFullError
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect

FIRST_BYTES_PER_TOKEN = 3.0  # until the engine's own counts tell; low, so that a first reservation is rather too large
RETRY_BURST = 10.0
MAX_SEEDS = 10_000


@dataclass(slots=True, eq=False)
class Route:
    """A model with replicas, in one worker process.

    Attributes:
        name: Of the model.
        model: Its configuration.
        gate: The way to its replicas.
        bytes_per_token: Learnt from the engine's counts of prompt tokens.
        retry_budget: Retries that may still be made.
        dialects: That its engines speak.
        timeouts: Limits of each phase.
        attempts: Replicas to try at most.
        repair: Outcomes that another attempt may mend.
        salted: Whether its engines take a cache salt.
        tokenizes: Whether any of its replicas tells what its cache holds, so that prompts are tokenized.
    """

    name: str
    model: Model
    gate: Gate
    bytes_per_token: float = FIRST_BYTES_PER_TOKEN
    retry_budget: float = RETRY_BURST
    dialects: list[Dialect] = field(init=False)
    tokenizes: bool = field(init=False)
    timeouts: Timeouts = field(init=False)  # these are the model's; its fields are slow to read
    attempts: int = field(init=False)
    repair: frozenset[Outcome] = field(init=False)
    salted: bool = field(init=False)
    _budget: float = field(init=False)
    _seeds: dict[str, bytes] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        model = self.model
        self.timeouts, self.attempts, self.salted = model.timeouts, model.retries.attempts, model.cache_salt
        self.repair, self._budget = frozenset(map(Outcome, model.retries.repair)), model.retries.budget
        self.dialects = [DIALECTS[name] for name in model.dialects]
        self.tokenizes = any(replica.config.kv_events is not None for replica in self.gate.replicas)

    def seed(self, salt: str) -> bytes:
        """What the block chains of a tenant begin with at this model."""
        known = self._seeds.get(salt)
        if known is None:
            if len(self._seeds) > MAX_SEEDS:
                self._seeds.clear()
            known = self._seeds[salt] = f"{self.name}\0{salt}".encode()
        return known

    def estimate(self, prompt_bytes: int) -> int:
        """Tokens of a prompt, about."""
        return int(prompt_bytes / self.bytes_per_token) + 1

    def learn(self, prompt_bytes: int, prompt_tokens: int) -> None:
        """What the engine counted."""
        if prompt_bytes >= 256 and prompt_tokens > 0:
            self.bytes_per_token += 0.05 * (min(max(prompt_bytes / prompt_tokens, 0.5), 12.0) - self.bytes_per_token)

    def may_retry(self) -> bool:
        """Takes one retry out of the budget."""
        if self.retry_budget < 1:
            return False
        self.retry_budget -= 1
        return True

    def asked(self) -> None:
        """A request earns its share of a retry."""
        self.retry_budget = min(RETRY_BURST, self.retry_budget + self._budget)


@dataclass(slots=True)
class Snapshot:
    """See the module.

    Attributes:
        config: The configuration.
        digest: Of the configuration; stands in every journal line.
        auth: Who may call.
        routes: By model name; models with a split have none.
        names: Every name that a client may use, to the model's.
    """

    config: Gateway
    digest: str
    auth: Authenticator
    routes: dict[str, Route]
    names: dict[str, str] = field(default_factory=dict)
    _orders: dict[tuple[str, frozenset[str] | None], list[Route]] = field(init=False, default_factory=dict)

    def resolve(self, name: str, identity: Identity) -> list[Route]:
        """The models to try for a name, in order: what the name stands for, then the fallbacks that the caller may use.

        Raises:
            Refusal: 404, also for a model that the caller may not use.
        """
        model_name = self.names.get(name)
        if model_name is None or not may_use(identity, model_name):
            raise unknown_model()
        order = self._orders.get((model_name, identity.models))
        if order is not None:
            return order
        model = self.config.models[model_name]
        first = model_name
        if model.split:
            first = random.choices(list(model.split), list(model.split.values()))[0]
        others = (*self.config.models[first].fallbacks, *(model.fallbacks if model.split else ()))
        allowed = (name for name in others if may_use(identity, name))
        order = [self.routes[n] for n in dict.fromkeys((first, *allowed)) if n in self.routes]
        if not model.split:
            self._orders[model_name, identity.models] = order
        return order

    def visible(self, identity: Identity) -> list[str]:
        """Names that the caller may use."""
        return [name for name, model in self.names.items() if may_use(identity, model)]

    def close(self) -> None:
        """Closes idle connections; those in use end with their requests."""
        for route in self.routes.values():
            for replica in route.gate.replicas:
                replica.pool.end()


def may_use(identity: Identity, model: str) -> bool:
    """Whether the caller's tenant and key allow a model."""
    return identity.models is None or model in identity.models


def take_snapshot(
    config: Gateway,
    *,
    table: SharedTable,
    folder: Path,
    keys: KeyStore,
    tokens: TokenVerifier | None,
    gauge: Callable[[int, int], None],
) -> Snapshot:
    """Everything that follows from a configuration.

    Args:
        config: It.
        table: Shared memory.
        folder: Of mapped files.
        keys: API keys.
        tokens: For bearer tokens.
        gauge: Told changes of waiting tickets.
    """
    if config.auth.undeclared_tenants:
        with contextlib.suppress(TableFullError):
            for tenant in config.tenants:
                table.row(f"tenant:{tenant}")  # before undeclared ones have taken every row
    routes, names = {}, {}
    for name, model in config.models.items():
        names[name] = name
        names.update(dict.fromkeys(model.aliases, name))
        if model.replicas:
            replicas = [Replica(name, one, model.health, table, folder) for one in model.replicas]
            routes[name] = Route(name, model, Gate(model, replicas, gauge, Demand(name, table)))
    return Snapshot(config, digest_of(config), Authenticator(config, keys, tokens), routes, names)


def digest_of(config: Gateway) -> str:
    """Of a configuration's content; it names secrets' variables and never holds one."""
    return sha256(config.model_dump_json().encode()).hexdigest()[:12]
