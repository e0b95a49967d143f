"""Graders, one file each: from an answer to a score between 0 and 1, the same every time."""
