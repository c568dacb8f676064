"""A run on another machine's cluster: what is shipped, what is looked at first, how a job is followed."""
