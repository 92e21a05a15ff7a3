"""Which plan is best, and how we know."""
