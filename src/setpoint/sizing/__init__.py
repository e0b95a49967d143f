"""Model, hardware and knobs to a plan."""
