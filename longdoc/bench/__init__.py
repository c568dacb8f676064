"""Benchmarks: what runs side by side in one session, and what it is held against.

Owns the measurements of `longdoc bench` and the record of their results. Prints nothing and exits nothing: a benchmark
returns a `Report`, and the command line shows it. Ratios are of medians of interleaved repeats in one run; seconds of
different runs are never compared.
"""
