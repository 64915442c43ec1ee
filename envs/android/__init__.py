"""Games of Android phones, and what all phone games share."""
