"""Records rendered as text, HTML, Markdown and JSON: one content, four renderers, always the same six sections.

In: run records (one run, or the steps of a series). Out: a ``Report``. Nothing but records is read, so a report can be
rebuilt at any time.
"""
