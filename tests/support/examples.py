"""How often a law is tried. A test names the count that finds a defect well enough; the profile takes its share of it.

``HYPOTHESIS_PROFILE`` is ``quick`` by default and in ``make check`` (a fifth), ``thorough`` in ``make test`` (half), or
``search`` (five times as many, and others each time).
"""

from hypothesis import settings

WHOLE = 100
"""What Hypothesis tries by default; the examples of a profile are a share of it."""


def scaled(count: int) -> int:
    """The profile's share of ``count``, at least one."""
    return max(1, round(count * settings.default.max_examples / WHOLE))


def examples(count: int, quick: int | None = None) -> settings:
    """A decorator for laws that need more or fewer examples than others.

    ``quick`` is what the quick profile makes do with where a fifth of ``count`` takes too long.
    """
    share = scaled(count)
    return settings(max_examples=share if quick is None else quick if share < count else share)


def seeds(count: int) -> range:
    """The profile's share of the first ``count`` seeds, for laws that draw their own examples."""
    return range(min(count, scaled(count)))
