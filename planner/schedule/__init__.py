"""In which order each stage does F, B, I and W; no time in here."""
