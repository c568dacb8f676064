"""The jobs: which sources a command line means and how each kind is opened."""
