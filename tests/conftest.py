"""For all tests: a busy machine is no failure, so examples of hypothesis have no deadline."""

from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
