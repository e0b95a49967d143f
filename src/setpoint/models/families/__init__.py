"""Model families: one function per way of writing a decoder down, from configuration fields to layers.

A new family is a function and its ``model_type`` rows in ``registry``.
"""
