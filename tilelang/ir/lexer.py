"""The words of IR text: tokens, string and type spellings, and a cursor that the parser moves over them."""

from __future__ import annotations

import re
from typing import NoReturn

from tilelang.diagnostics import Source, Span, TileError, make
from tilelang.ir import upstream
from tilelang.ir.types import SCALAR_NAMES, BufferType, Dim, Dyn, PtrType, Scalar, TensorType, TileType, Type, VectorType, token

# One match a token, blanks and comments before it skipped. A whole type is one token, since the same few types come again and again.
_TOKEN = re.compile(
    r"""(?:\s+|//[^\n]*)*(
      %[\w$.-]+(?:\#\d+)?
    | (?:!\w+\.)?(?:tile|tensor|buffer|vector|ptr)<(?:[^<>]|(?<=-)>|<[^<>]*>)*>
    | !\w+\.\w+
    | [A-Za-z_][\w$]*(?:\.[\w$]+)*
    | "(?:[^"\\\n]|\\.)*"
    | -?\d+(?:\.\d*(?:[eE][-+]?\d+)?|[eE][-+]?\d+)
    | 0x[0-9A-Fa-f]+ | -?\d+ | -inf | -nan
    | -> | [@^][\w$.-]+ | \#[\w.]+(?:<[^<>]*>)?
    | \S
    | \Z
    )""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
_DIM = re.compile(r"\s*(?:(-?\d+)|(\?)(\d+)?|([A-Za-z_].*?)(?:\?(\d+))?)\s*\Z")
_TYPE = re.compile(r"(?:!\w+\.)?(\w+)(?:<(.*)>)?\Z", re.DOTALL)
_ELEMENT = re.compile(r"\s*(\w+)\s*\[(.*?)\]\s*(?:,\s*(.*?)\s*)?\Z", re.DOTALL)

TYPES: dict[str, Type] = {
    **{name: Scalar(name) for name in SCALAR_NAMES},
    **upstream.SCALARS,
    "token": token,
    "!mem.token": token,
}


def parse_type(text: str) -> Type:
    """The type that a text spells, in either form. Raises ValueError that says what is wrong."""
    found = TYPES.get(text)
    if found is None:
        found = TYPES[text] = _read_type(text)
    return found


def _read_type(text: str) -> Type:
    match = _TYPE.match(text)
    if match is None or match[2] is None:
        raise ValueError(f"'{text}' is not a type")
    kind, body = match[1], match[2]
    if kind == "vector":
        lanes, x, element = body.partition("x")
        if not x or not lanes.strip().isdigit():
            raise ValueError(f"'{text}' is not of the form vector<16xf32>")
        return VectorType(int(lanes), _scalar(element))
    if kind == "ptr":
        element, comma, space = body.partition(",")
        return PtrType(_scalar(element), space.strip() if comma else "global")
    inner = _ELEMENT.match(body)
    if inner is None:
        raise ValueError(f"'{text}' is not of the form {kind}<f32[4, 8]>")
    element, shape, rest = _scalar(inner[1]), _dims(inner[2]), inner[3]
    if kind == "tensor":
        return TensorType(shape, element, rest or None)
    if kind == "tile":
        if rest and not rest.startswith("layout "):
            raise ValueError(f"a tile type has 'layout ...' after its shape, not '{rest}'")
        return TileType(shape, element, rest[len("layout ") :].strip() if rest else None)
    if kind == "buffer":
        found = re.match(r"(\w+)\s*(?:,\s*strides\s*\[(.*?)\]\s*)?(?:,\s*layout\s+(.*))?\Z", rest or "", re.DOTALL)
        if found is None:
            raise ValueError(f"'{text}' is not of the form buffer<f32[4, 8], global, strides [8, 1]>")
        return BufferType(shape, element, found[1], None if found[2] is None else _dims(found[2]), found[3])
    raise ValueError(f"'{kind}' is not a type")


def _scalar(text: str) -> Scalar:
    found = TYPES.get(text.strip())
    if not isinstance(found, Scalar):
        raise ValueError(f"'{text.strip()}' is not an element type")
    return found


def _dims(text: str) -> tuple[Dim, ...]:
    parts: list[str] = []
    depth = start = 0
    for m in re.finditer(r"[(\[]|[)\]]|,|\Z", text):
        if m[0] in ("", ",") and depth == 0:
            parts.append(text[start : m.start()])
            start = m.end()
        elif m[0] and m[0] != ",":
            depth += 1 if m[0] in "([" else -1
    if parts == [""] or not text.strip():
        return ()
    return tuple(_dim(p) for p in parts)


def _dim(text: str) -> Dim:
    m = _DIM.match(text)
    if m is None:
        raise ValueError(f"'{text.strip()}' is not an extent: a number, a name, ? or ?64")
    if m[1] is not None:
        return int(m[1])
    if m[2] is not None:
        return Dyn("", int(m[3]) if m[3] else None)
    return Dyn(m[4], int(m[5]) if m[5] else None)


def unquote(text: str) -> str:
    if "\\" not in text:
        return text[1:-1]

    def plain(m: re.Match[bytes]) -> bytes:
        return bytes.fromhex(m[1].decode()) if len(m[1]) == 2 else {b"n": b"\n", b"t": b"\t"}.get(m[1], m[1])

    return _ESCAPE.sub(plain, text[1:-1].encode()).decode(errors="replace")


class Cursor:
    """A position in the tokens of a source, with errors that point there."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens: list[str] = []
        self.starts: list[int] = []
        for m in _TOKEN.finditer(source.text):
            self.tokens.append(m[1])
            self.starts.append(m.start(1))
        # Looking two tokens ahead never runs off the end.
        self.tokens += ["", ""]
        self.starts += [len(source.text)] * 2
        self.pos = 0

    def fail(self, what: str, at: int | None = None, help: str | None = None) -> NoReturn:
        at = self.pos if at is None else at
        start = self.starts[at]
        raise TileError(make("ir-syntax", Span(self.source, start, start + len(self.tokens[at])), what=what, help=help))

    def unexpected(self, expected: str) -> NoReturn:
        found = self.tokens[self.pos]
        self.fail(f"expected {expected}, found {f'{found!r}' if found else 'the end of the text'}")

    def take(self, expected: str) -> None:
        if self.tokens[self.pos] != expected:
            self.unexpected(repr(expected))
        self.pos += 1

    def accept(self, text: str) -> bool:
        if self.tokens[self.pos] == text:
            self.pos += 1
            return True
        return False

    def word(self, what: str) -> str:
        found = self.tokens[self.pos]
        if not found or not (found[0].isalpha() or found[0] == "_"):
            self.unexpected(what)
        self.pos += 1
        return found

    def symbol(self) -> str:
        found = self.tokens[self.pos]
        if found == "@" and self.tokens[self.pos + 1].startswith('"'):
            self.pos += 2
            return unquote(self.tokens[self.pos - 1])
        if not found.startswith("@") or found == "@":
            self.unexpected("a function name like '@f'")
        self.pos += 1
        return found[1:]

    def integer(self, what: str) -> int:
        found = self.tokens[self.pos]
        if not found.lstrip("-").isdigit():
            self.unexpected(what)
        self.pos += 1
        return int(found)
