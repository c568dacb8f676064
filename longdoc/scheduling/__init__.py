"""Runs on a schedule: which entries there are, when they are due, who runs a tick, and what came of it."""
