"""Engines: how to launch one, how to know that it is ready, how to read its signals.

In: a model file, flags, or just a URL. Out: a ``RunningEngine`` with its ``Target``, its pins and a signal sampler.
An engine is one file with one ``Engine`` and one line in ``registry``; its series are rows of ``series``.
"""
