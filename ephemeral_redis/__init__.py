"""The shared side of ephemeral: tools around a fleet of workers."""
