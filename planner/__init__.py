"""Plan, profile and run pipeline-parallel training of unmodified models."""

__version__ = "0.1.0"
