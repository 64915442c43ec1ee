"""What algorithms are made of: their base class, and the mathematics that several of them share."""
