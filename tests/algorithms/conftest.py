from hypothesis import settings

# On a busy machine an example of a few tensors may take a second.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
