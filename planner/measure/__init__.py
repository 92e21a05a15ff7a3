"""What a layer costs."""
