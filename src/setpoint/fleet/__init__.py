"""A deployment on this machine: engines started, watched and ended, and one gateway in front of them.

In comes a deployment file (models, engines, flags, replicas, and all that a gateway can be told); out go engine
processes under guard and a gateway whose replicas are up, loading, stopped or down as those processes are. Nothing is
reconciled: a dead engine is started again a bounded number of times, and a stopped one when its model is asked for.
"""
