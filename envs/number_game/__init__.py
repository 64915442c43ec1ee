"""Games on an Android phone: an app that draws itself, and the environment that plays it."""
