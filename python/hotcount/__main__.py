"""``python -m hotcount`` is the ``hotcount`` command."""

from __future__ import annotations

import sys

from hotcount.cli import main

sys.exit(main())
