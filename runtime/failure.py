"""What a kernel says when it stops: one form for the interpreters and for compiled code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tilelang.diagnostics import Diagnostic, Note, Span, TileError, make

_PLACE = re.compile(r"\{(\d+)\}")


class KernelError(TileError):
    """A kernel stopped: a failed assert, or an access outside a buffer."""


def position_note(position: Sequence[tuple[str, int]]) -> Note:
    """Where in the grid it happened."""
    return Note(f"in the grid block {block_text(position)}")


def block_text(position: Sequence[tuple[str, int]]) -> str:
    return "(" + ", ".join(f"{name}={i}" for name, i in position) + ")"


def assertion(slug: str, message: str, span: Span | None, values: Sequence[Any] = (), notes: Iterable[Note] = ()) -> Diagnostic:
    """The diagnostic of a failed loop.assert. `{0}`, `{1}`, ... in the message stand for the values; values that it does not name follow it."""
    texts = [str(v) for v in values]
    named = {int(n) for n in _PLACE.findall(message)}
    text = _PLACE.sub(lambda m: texts[int(m[1])] if int(m[1]) < len(texts) else m[0], message)
    rest = [t for i, t in enumerate(texts) if i not in named]
    if rest:
        text += f" ({', '.join(rest)})"
    if slug == "run-assert":
        return make(slug, span, notes, message=text)
    return Diagnostic(slug, text, span, tuple(notes))


def out_of_bounds(slug: str, span: Span | None, what: str, axis: int, index: int, length: int, notes: Iterable[Note] = ()) -> Diagnostic:
    return make(slug, span, notes, what=what, axis=axis, index=index, length=length)
