"""Plugins, and SFNet."""
