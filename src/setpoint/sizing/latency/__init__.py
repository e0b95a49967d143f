"""TTFT, TPOT and goodput of a placement, from a roofline with fitted efficiencies.

In: a model's ``Shape`` (``shape_of`` a spec), an ``Accelerator``, a ``Split`` and a load. Out: an ``Estimate`` with
ranges that held on models the fit had not seen; ``docs/accuracy.md`` says how well.

    shape, from_spec    what the estimate needs of a model
    work                bytes, operations, kernels and collectives of one step, as seconds at peak
    terms, tuned        fitted terms, and those of one engine and accelerator
    service             time of a step, and what sessions see that share an engine
    estimate, goodput   the answers
"""

from setpoint.sizing.latency.estimate import Estimate, Request, estimate, estimates
from setpoint.sizing.latency.from_spec import shape_of
from setpoint.sizing.latency.goodput import Goodput, at_rate, goodput
from setpoint.sizing.latency.shape import Shape
from setpoint.sizing.latency.terms import BACKENDS, Backend
from setpoint.sizing.latency.work import Split, split_of

__all__ = [
    "BACKENDS",
    "Backend",
    "Estimate",
    "Goodput",
    "Request",
    "Shape",
    "Split",
    "at_rate",
    "estimate",
    "estimates",
    "goodput",
    "shape_of",
    "split_of",
]
