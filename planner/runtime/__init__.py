"""Training: launch, one worker per card, data, optimizer, checkpoints."""
