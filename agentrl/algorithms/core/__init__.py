"""The base class of algorithms, and the mathematics that several of them share."""
