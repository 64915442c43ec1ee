"""The version, in a module that can be imported without the public API."""

__version__ = "0.1.0"
