"""Wire types and the verdict on an answer, written once for load generator and gateway."""
