"""The whole loop within a budget."""
