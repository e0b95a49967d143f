"""A schedule, many clients, one run record."""
