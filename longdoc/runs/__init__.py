"""One run's own business: what is to do, how a document is finished, what is written down about the run."""
