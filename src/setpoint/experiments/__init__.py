"""One variable, two arms, a verdict: which change to try, how to try it, and what its figures come to. Pure.

In: a diagnosis (what to try), or the runs of two arms made in interleaved blocks (what came of it). Out: proposals
ranked by expected gain, a randomised design, effects with intervals, and a verdict: better, worse, same within δ, or
undecided with the reason. Running the arms against a live target is for ``assess``. ``imports`` reads the result files
of other load generators as run records, marked with what they lack.
"""
