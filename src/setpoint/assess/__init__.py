"""The whole loop within a budget: target, measurement, search, report.

In: a card and a target (a URL, or an engine to start). Out: run records of one series, and what they come to. This
package joins siblings that do not know each other: the sampler of ``engines`` runs inside the runs of ``load``.
"""
