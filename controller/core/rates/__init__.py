"""Rates: interference-aware multipath congestion control (docs/explanation/rates.md)."""

from hyroads.controller.core.rates.allocation import Allocation
from hyroads.controller.core.rates.problem import Layout, RateProblem, rate_problem
from hyroads.controller.core.rates.solver import solve
from hyroads.controller.core.rates.utilities import Utilities, utilities_of

__all__ = ["Allocation", "Layout", "RateProblem", "Utilities", "rate_problem", "solve", "utilities_of"]
