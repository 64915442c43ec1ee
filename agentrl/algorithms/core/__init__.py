"""The base class of algorithms, and the mathematics they share."""
