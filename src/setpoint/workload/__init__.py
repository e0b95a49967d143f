"""What traffic looks like and what is promised.

In: a workload card (one YAML file), a trace, or a use case. Out: a validated ``Workload``, its promises, a
``Schedule`` of planned sends that depends on card and seed alone, and prompts of the planned lengths.
Pure, but for reading the file that it is asked to read.
"""
