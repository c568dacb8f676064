"""Rings of Ray actors: where they stand, how they meet, what each rank computes, how documents stream through."""
