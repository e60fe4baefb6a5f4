"""The passes: one a file, named like the pass (a name that is a Python keyword gets an ending). Importing this package imports none of them;
tilelang.ir.passes.get_pass loads the one it is asked for."""

from __future__ import annotations

import pkgutil
import re
from functools import cache

_NAME = re.compile(rb'\n@register\n.*?\n    name: ClassVar\[str\] = "([^"]+)"', re.DOTALL)


@cache
def modules() -> dict[str, str]:
    """The module of each pass, by the name of the pass; found by looking at the files."""
    found: dict[str, str] = {}
    for info in pkgutil.iter_modules(__path__):
        if not info.ispkg:
            for name in _NAME.findall(pkgutil.get_data(__name__, f"{info.name}.py") or b""):
                found[name.decode()] = info.name
    return found


def names() -> tuple[str, ...]:
    """Names of all passes that there are files of."""
    return tuple(modules())
