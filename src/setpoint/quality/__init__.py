"""What answers are worth: suites, graders, controls, comparison.

In: a target and suites (JSONL files of tasks). Out: one graded row an answer in ``quality.parquet``, token
distributions after pinned texts in ``distributions.parquet``, and the findings of the serving checks. A suite is
believed only when its own controls hold: reference answers score full, wrong ones near zero. An answer that did not
come is unmeasured and counts against coverage; it is never scored, and never left out of the count.
"""
