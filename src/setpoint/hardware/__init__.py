"""A cited catalogue of accelerators, and a probe of this machine.

In: the packaged file ``accelerators.yaml`` and, optionally, a user's own file of the same shape. Out: ``Accelerator``
values whose every figure says where it comes from (``datasheet``, ``logged`` or ``assumed``), in base units, and
``ProbeResult`` values that were ``measured`` here.
"""

from setpoint.hardware.accelerator import Accelerator, Figure, Fleet, Links, Origin, Precision, Price
from setpoint.hardware.catalogue import catalogue, find, parse_fleet

__all__ = [
    "Accelerator",
    "Figure",
    "Fleet",
    "Links",
    "Origin",
    "Precision",
    "Price",
    "catalogue",
    "find",
    "parse_fleet",
]
