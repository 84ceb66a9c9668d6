"""When a group leaves, who writes it, and who looks for its end: `pacing.Pacing` is all that others see of it."""
