"""Ring attention, exactly: who owns which tokens, what travels at each hop, and how partial results become one.

Knows nothing of Ray, Parquet, model files or the command line.
"""
