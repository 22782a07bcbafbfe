"""A pytest plugin for scripts/sanitize: programs that are not Python run without the runtime.

It is preloaded, for an interpreter that was built without it; servers would inherit it.
"""

import os
import subprocess
import sys
from typing import Any

_start = subprocess.Popen.__init__


def _start_without_runtime(self: Any, args: Any, *rest: Any, **options: Any) -> None:
    program = args if isinstance(args, (str, bytes, os.PathLike)) else next(iter(args))
    if os.fsdecode(program) != sys.executable:
        environment = dict(os.environ if options.get("env") is None else options["env"])
        environment.pop("LD_PRELOAD", None)
        options["env"] = environment
    _start(self, args, *rest, **options)


subprocess.Popen.__init__ = _start_without_runtime  # type: ignore[method-assign]
