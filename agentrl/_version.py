"""The version, which modules of the package read without importing its public API."""

__version__ = "0.1.0"
