"""A cited catalogue of accelerators, and a probe of this machine."""
