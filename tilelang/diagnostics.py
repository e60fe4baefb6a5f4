"""Sources, spans and diagnostics: how every part of the compiler says where something is and what is wrong.

Both frontends make the same spans, every op carries one, and an error looks like this:

    matmul.tile:7:16: error[shape-mismatch]: matmul contracts 32 with 64
       7 |         acc += a @ b
         |                ^^^^^
      note: 'a' is 128x32 f16, loaded here (matmul.tile:5:17)
      help: slice b by k:k+32
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

from tilelang.errors import CATALOGUE

_NEWLINE = re.compile(r"\r\n|\r|\n")
_TAB = 4
_MAX_WIDTH = 160  # a longer source line is cut around the caret
_COLOURS = {
    "error": "\033[1;31m",
    "warning": "\033[1;33m",
    "note": "\033[1;36m",
    "help": "\033[1;32m",
    "gutter": "\033[1;34m",
}


class Source:
    """A piece of program text. `first_line` and `columns` say where in the file it starts: text cut out of a file
    starts at line `first_line`, and had `columns` characters removed at the left of each line."""

    __slots__ = ("path", "text", "first_line", "columns", "_starts")

    def __init__(self, path: str, text: str, first_line: int = 1, columns: int = 0) -> None:
        self.path = path
        self.text = text.removeprefix("\ufeff")  # a byte order mark is no part of the program
        self.first_line = first_line
        self.columns = columns
        self._starts: list[int] | None = None

    @property
    def starts(self) -> list[int]:
        """The offset at which each line starts."""
        if self._starts is None:
            self._starts = [0, *(m.end() for m in _NEWLINE.finditer(self.text))]
        return self._starts

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column (both from 1) of a character offset."""
        row = bisect.bisect_right(self.starts, offset) - 1
        return self.first_line + row, offset - self.starts[row] + 1 + self.columns

    def line_text(self, line: int) -> str:
        """The text of a line without its line end; '' when it is outside the text."""
        row = line - self.first_line
        if not 0 <= row < len(self.starts):
            return ""
        end = self.starts[row + 1] if row + 1 < len(self.starts) else len(self.text)
        return self.text[self.starts[row] : end].rstrip("\r\n")

    def offset(self, line: int, column: int) -> int:
        """The character offset of a line and column (from 1), clipped to the text."""
        row = min(max(line - self.first_line, 0), len(self.starts) - 1)
        return min(max(self.starts[row] + column - 1 - self.columns, 0), len(self.text))


@dataclass(frozen=True, slots=True)
class Span:
    """The characters [start, end) of a source."""

    source: Source
    start: int
    end: int

    @classmethod
    def at(cls, path: str, line: int, column: int) -> Span:
        """A position without text, as IR text gives it."""
        return cls(Source(path, "", line, column - 1), 0, 0)

    @classmethod
    def join(cls, a: Span, b: Span) -> Span:
        """The smallest span that covers both; `a` when they are of different sources."""
        if a.source is not b.source:
            return a
        return cls(a.source, min(a.start, b.start), max(a.end, b.end))

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    @property
    def end_line(self) -> int:
        """The line of the last character."""
        return self.source.position(max(self.start, self.end - 1))[0]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.path}:{line}:{column}"

    def __repr__(self) -> str:
        return f"Span({self}, {self.text!r})"


def _cells(char: str, column: int) -> str:
    """What a character prints as at a display column: tabs become spaces, what would disturb a terminal a mark."""
    if char == "\t":
        return " " * (_TAB - column % _TAB)
    category = unicodedata.category(char)
    return "\N{REPLACEMENT CHARACTER}" if category in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co") else char


def _width(cells: str) -> int:
    if cells.isascii():
        return len(cells)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in cells)


def _snippet(span: Span, paint: _Paint) -> list[str]:
    """The first line of the span with a caret line below it."""
    source = span.source
    if not source.text:
        return []
    line, column = source.position(span.start)
    text = source.line_text(line)
    first = min(column - 1 - source.columns, len(text))
    multiline = span.end_line > line
    last = len(text) if multiline else min(first + span.end - span.start, len(text))
    cut, lead = 0, ""
    if len(text) > _MAX_WIDTH and first > _MAX_WIDTH // 2:
        cut, lead = first - _MAX_WIDTH // 2, "..."
    shown, before, under, width = lead, len(lead), 0, len(lead)
    for at in range(cut, min(len(text), cut + _MAX_WIDTH)):
        cells = _cells(text[at], width)
        w = _width(cells)
        shown += cells
        width += w
        if at < first:
            before += w
        elif at < last:
            under += w
    if len(text) > cut + _MAX_WIDTH:
        shown += "..."
    caret = "^" * max(under, 1) + (f" ... to line {span.end_line}" if multiline else "")
    number = f"{line:4d}"
    return [
        paint("gutter", f"{number} |") + (f" {shown}" if shown.strip() else ""),
        paint("gutter", f"{' ' * len(number)} |") + f" {' ' * before}{paint('error', caret)}",
    ]


class _Paint:
    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, kind: str, text: str) -> str:
        return f"{_COLOURS[kind]}{text}\033[0m" if self.color and kind in _COLOURS else text


@dataclass(frozen=True, slots=True)
class Note:
    """A further fact about a diagnostic, at another place when it has a span."""

    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message to the user: what is, and what was expected. `slug` is its entry in the catalogue."""

    slug: str
    message: str
    span: Span | None = None
    notes: tuple[Note, ...] = ()
    help: str | None = None
    severity: str = "error"

    def render(self, color: bool = False) -> str:
        paint = _Paint(color)
        where = f"{self.span}: " if self.span is not None else ""
        lines = [f"{where}{paint(self.severity, f'{self.severity}[{self.slug}]')}: {self.message}"]
        if self.span is not None:
            lines += _snippet(self.span, paint)
        for note in self.notes:
            place = f" ({note.span})" if note.span is not None else ""
            lines.append(f"  {paint('note', 'note')}: {note.message}{place}")
        if self.help:
            lines.append(f"  {paint('help', 'help')}: {self.help}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


class TileError(Exception):
    """The program, or a call of it, is wrong. `diagnostics` says where and why; `str` is what the user reads."""

    def __init__(self, diagnostics: Sequence[Diagnostic] | Diagnostic, more: int = 0) -> None:
        self.diagnostics = [diagnostics] if isinstance(diagnostics, Diagnostic) else list(diagnostics)
        self.more = more
        super().__init__(self.diagnostics, more)

    def render(self, color: bool = False) -> str:
        parts = [d.render(color) for d in self.diagnostics]
        if self.more:
            parts.append(f"and {self.more} more error{'s' if self.more > 1 else ''}")
        return "\n".join(parts)

    def __str__(self) -> str:
        # The message starts on a line of its own below "TileError:", so that source lines and carets stay aligned.
        return "\n" + self.render() if self.diagnostics else "no diagnostics"


class CompilerBug(Exception):
    """The compiler broke its own rules: never the user's fault. Names the pass, the op, and how to reproduce it."""

    def __init__(
        self, message: str, *, op: str = "", span: Span | None = None, pass_name: str = "", reproducer: object = ""
    ) -> None:
        self.message, self.op, self.span, self.pass_name, self.reproducer = (
            message,
            op,
            span,
            pass_name,
            str(reproducer),
        )
        super().__init__(message)

    def __str__(self) -> str:
        parts = [f"compiler bug{f' in pass {self.pass_name}' if self.pass_name else ''}: {self.message}"]
        if self.op:
            parts.append(f"  op: {self.op}")
        if self.span is not None:
            parts.append(f"  from: {self.span}")
            parts += _snippet(self.span, _Paint(False))
        if self.reproducer:
            parts.append(f"  reproduce with: tilec opt {self.reproducer}")
        return "\n".join(parts)


def without_own_frames(error: BaseException) -> TracebackType | None:
    """The traceback of `error` less the frames of this package, for `raise e.with_traceback(...) from None`."""
    kept: list[TracebackType] = []
    tb = error.__traceback__
    while tb is not None:
        if tb.tb_frame.f_globals.get("__name__", "").split(".")[0] != "tilelang":
            kept.append(tb)
        tb = tb.tb_next
    chain: TracebackType | None = None
    for tb in reversed(kept):
        chain = TracebackType(chain, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    return chain


def make(
    slug: str,
    span: Span | None,
    /,
    notes: Iterable[Note] = (),
    help: str | None = None,
    severity: str = "error",
    **fields: object,
) -> Diagnostic:
    """A diagnostic from the catalogue, its templates filled with `fields`. KeyError for an unknown slug or field."""
    entry = CATALOGUE[slug]
    if help is None and entry.help is not None:
        help = entry.help.format_map(fields)
    return Diagnostic(slug, entry.message.format_map(fields), span, tuple(notes), help, severity)


class Diagnostics:
    """Collects messages, so that one compile reports several errors: without repetition, in the order of the source."""

    limit = 20

    def __init__(self) -> None:
        self.all: list[Diagnostic] = []
        self._seen: set[object] = set()

    def add(self, diagnostic: Diagnostic) -> Diagnostic:
        span = diagnostic.span
        place = (span.path, span.line, span.column, span.end - span.start) if span is not None else None
        key = (diagnostic.slug, diagnostic.message, place)
        if key not in self._seen:
            self._seen.add(key)
            self.all.append(diagnostic)
        return diagnostic

    def error(
        self, slug: str, span: Span | None, /, notes: Iterable[Note] = (), help: str | None = None, **fields: object
    ) -> Diagnostic:
        """Reports the catalogue's error `slug` at `span`. `help` replaces the catalogue's."""
        return self.add(make(slug, span, notes, help, "error", **fields))

    def warning(
        self, slug: str, span: Span | None, /, notes: Iterable[Note] = (), help: str | None = None, **fields: object
    ) -> Diagnostic:
        return self.add(make(slug, span, notes, help, "warning", **fields))

    def sorted(self) -> list[Diagnostic]:
        """All of them by place; those without a place last."""

        def key(d: Diagnostic) -> tuple[bool, str, int, int]:
            return (True, "", 0, 0) if d.span is None else (False, d.span.path, d.span.line, d.span.column)

        return sorted(self.all, key=key)

    @property
    def errors(self) -> list[Diagnostic]:
        return [d for d in self.sorted() if d.severity == "error"]

    @property
    def warnings(self) -> list[Diagnostic]:
        return [d for d in self.sorted() if d.severity == "warning"]

    def raise_if_errors(self) -> None:
        """Raises TileError with the first `limit` errors, when there are any."""
        errors = self.errors
        if errors:
            raise TileError(errors[: self.limit], max(len(errors) - self.limit, 0))


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` was most likely meant to be, or None."""
    names = [c for c in dict.fromkeys(candidates) if c != name]
    for c in names:
        if c.lower() == name.lower():
            return c
    import difflib  # only here: errors are rare

    found = difflib.get_close_matches(name, names, 1, 0.6)
    return found[0] if found else None
