"""What `longdoc verify` checks, one module a subject. Reads files; knows nothing of models, rings or Ray."""
