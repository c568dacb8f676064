"""Where documents come from: one module a format or system, each giving `Source`s of `longdoc.records`."""
