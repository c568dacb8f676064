"""Text to the token ids of a model and back: vocabularies, seams, whole documents, a cache of token ids."""
