"""Adapters, the local process supervisor, and the signals read from engines."""
