"""longdoc: one exact forward pass of a pretrained model over whole books and whole repositories.

Importing this package imports neither torch nor ray, detects nothing and configures nothing.
"""

__version__ = "0.1.0"
