"""Examples of applications and of their plugins, each under 100 lines; each has a test that runs it."""
