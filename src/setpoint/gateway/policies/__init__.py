"""How a replica is chosen, one file a policy."""

from collections.abc import Callable

from setpoint.gateway.config import Routing
from setpoint.gateway.policies.least_loaded import LeastLoaded
from setpoint.gateway.policies.policy import Policy
from setpoint.gateway.policies.prefix_aware import PrefixAware
from setpoint.gateway.policies.random_choice import RandomChoice
from setpoint.gateway.policies.round_robin import RoundRobin


def make_policy(routing: Routing) -> Policy:
    """The policy that a configuration names."""
    if routing.policy == "prefix":
        return PrefixAware(window_tokens=routing.window_tokens, bound=routing.bound)
    policies: dict[str, Callable[[], Policy]] = {
        "round-robin": RoundRobin,
        "least-loaded": LeastLoaded,
        "random": RandomChoice,
    }
    return policies[routing.policy]()
