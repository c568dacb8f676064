"""From hidden states to rows: spans, scores, embeddings, and which rank writes what."""
