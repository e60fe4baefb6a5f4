"""The passes: one a file, named like the pass. Importing this package imports none of them; tilelang.ir.passes.get_pass loads the one it is asked for."""

from __future__ import annotations

import pkgutil
from functools import cache


@cache
def names() -> tuple[str, ...]:
    """Names of all passes, found by looking at the files: those that register a class."""
    found: list[str] = []
    for info in pkgutil.iter_modules(__path__):
        if not info.ispkg and b"\n@register\n" in (pkgutil.get_data(__name__, f"{info.name}.py") or b""):
            found.append(info.name.replace("_", "-"))
    return tuple(found)
