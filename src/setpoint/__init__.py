"""Setpoint: from what a product promises to a measured inference service that keeps it.

One loop over one set of records: card, plan, serve, measure, diagnose, experiment, judge, roll out, observe.
"""

__version__ = "0.1.0"
