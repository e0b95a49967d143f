"""Serving checks, one file each: what a server can break while the model is still right."""
