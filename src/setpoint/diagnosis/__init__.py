"""Evidence into ranked hypotheses, each with the probe that can refute it. Pure: it reads records and runs nothing.

In: the run that broke its promises (the subject), and any other runs of the same target: calmer loads, probes. Out: the
time of the broken requests part by part, a service model with intervals, a verdict for every hypothesis (supported,
refuted or undecided, with the numbers), what each promise's budget is spent on, and which probe would decide more.
"""
