"""From exchanges to the definitions: TTFT, ITL, TPOT, E2E, throughput, goodput, attainment, and verdicts.

In: the exchanges of one run (from records) and the promises of its card. Out: a ``Summary`` of distributions with
intervals, and one ``Verdict`` a promise: met, missed or undecided with its reason. Pure; written once for load
generator, simulator and gateway.
"""
