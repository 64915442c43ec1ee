"""Questions with one answer each: over data sets of one's own, or drawn here."""
