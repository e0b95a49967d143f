"""Records rendered as text, HTML and JSON."""
