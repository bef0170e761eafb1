"""``python -m hyroads.controller.cli`` is the command ``hyroads``."""

from __future__ import annotations

import sys

from .main import main

sys.exit(main())
