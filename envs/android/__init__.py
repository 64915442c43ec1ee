"""Games for Android phones, and the code that all phone games share."""
