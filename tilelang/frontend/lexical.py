"""What happens around the grammar of .tile text: indentation and brackets, and the wording of syntax errors."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilelang.errors import CONSTRUCTS

if TYPE_CHECKING:
    from lark import Token

# The text handed to lark has a line end added before and after, so each line of the program has one on both sides.
MARGIN = 1

_MAX_NESTING = 100  # of brackets or blocks, as in Python
_NUMBER = re.compile(
    r"0[xX](_?[0-9a-fA-F])+|0[bB](_?[01])+|0[oO](_?[0-7])+|0(_?0)*|[1-9](_?\d)*"
    r"|(\d(_?\d)*\.(\d(_?\d)*)?|\.\d(_?\d)*)([eE][+-]?\d(_?\d)*)?|\d(_?\d)*[eE][+-]?\d(_?\d)*",
    re.ASCII,
)
_OPEN = {"LPAR": "(", "LSQB": "["}
_CLOSE = {"RPAR": "(", "RSQB": "["}
_STATEMENTS = ("def", "return", "while", "pass", "break", "continue", "assert", "from", "import")
_HEADERS = {
    "for": "the loop header",
    "while": "the loop condition",
    "if": "the condition",
    "elif": "the condition",
    "else": "'else'",
    "def": "the function header",
}
_RESERVED = {"except": "try", "finally": "try", "async": "async", "nonlocal": "global", "is": "identity"}
_WORDS = {"_NL": "the end of the line", "$END": "the end of the file", "_DEDENT": "the end of the block"}


@dataclass
class Problem(Exception):
    """A syntax error: the characters [start, end) of lark's text, and what the catalogue's entry is told."""

    slug: str
    start: int
    end: int
    what: str
    help: str | None = None
    note: tuple[str, int] | None = None  # a message and the place it is about


def unsupported(construct: str, start: int, end: int) -> Problem:
    what, help = CONSTRUCTS[construct]
    return Problem("unsupported-construct", start, end, what, help)


def start_of(token: Token) -> int:
    return token.start_pos or 0


def end_of(token: Token) -> int:
    return token.end_pos or 0


class Layout:
    """lark's postlex step: makes _INDENT and _DEDENT from line starts, drops line ends inside brackets, and refuses
    tokens that no program has. `tokens` and `brackets` are what was seen so far, for error messages."""

    always_accept = ("RESERVED", "PREFIXED", "OPEN_STRING", "LBRACE", "RBRACE", "SEMICOLON", "WALRUS", "OTHER")

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.brackets: list[Token] = []

    def process(self, stream: Iterable[Token]) -> Iterator[Token]:
        self.tokens, self.brackets = [], []
        levels, last = [(0, 0)], None
        for token in stream:
            last = token
            if token.type == "_NL":
                if not self.brackets:
                    yield from self._line_start(token, levels)
                continue
            self._check(token)
            self.tokens.append(token)
            yield token
        if self.brackets:
            raise self._unclosed(self.brackets[-1])
        if last is not None and last.type != "_NL":
            at = end_of(last)
            raise Problem("syntax", at, at, "expected another line after the backslash, found the end of the file")

    def _line_start(self, newline: Token, levels: list[tuple[int, int]]) -> Iterator[Token]:
        indent = re.split(r"[\r\n]", newline)[-1]
        at = end_of(newline)
        level = _columns(indent)
        if not self.tokens:
            if level != (0, 0) and "#" not in indent:
                raise Problem("indentation", at, at, "the first line is indented", "start it at the left margin")
            return
        if self.tokens[-1].type not in ("_NL", "_DEDENT"):
            self.tokens.append(newline)
            yield newline
        if "#" in indent:  # a comment at the very end of the text
            return
        top = levels[-1]
        if (level[0] > top[0], level[0] < top[0]) != (level[1] > top[1], level[1] < top[1]):
            what = "this line is indented with a mixture of tabs and spaces that the line above does not have"
            raise Problem("indentation", at, at, what, "indent with spaces only")
        if level > top:
            if len(levels) > _MAX_NESTING:
                raise Problem("syntax", at, at, f"blocks are nested more than {_MAX_NESTING} deep, expected fewer")
            levels.append(level)
            yield self._layout_token("_INDENT", newline)
        while level < levels[-1]:
            levels.pop()
            yield self._layout_token("_DEDENT", newline)
        if level != levels[-1]:
            inside = levels[-1][0]
            what = f"this line is indented by {level[0]} columns, which is no block that is open here"
            raise Problem("indentation", at, at, what, f"the nearest block outside is indented by {inside}")

    def _layout_token(self, type: str, newline: Token) -> Token:
        from lark import Token

        token = Token(type, "", end_of(newline), end_pos=end_of(newline))
        self.tokens.append(token)
        return token

    def _unclosed(self, bracket: Token) -> Problem:
        return Problem("syntax", start_of(bracket), end_of(bracket), f"{str(bracket)!r} is never closed")

    def _check(self, token: Token) -> None:
        kind, start, end = token.type, start_of(token), end_of(token)
        if kind in _OPEN:
            if len(self.brackets) >= _MAX_NESTING:
                raise Problem(
                    "syntax", start, end, f"brackets are nested more than {_MAX_NESTING} deep, expected fewer"
                )
            self.brackets.append(token)
        elif kind in _CLOSE:
            if not self.brackets:
                raise Problem("syntax", start, end, f"{str(token)!r} closes nothing: no bracket is open here")
            opened = self.brackets.pop()
            if str(opened) != _CLOSE[kind]:
                what = f"{str(token)!r} does not close {str(opened)!r}"
                raise Problem("syntax", start, end, what, None, (f"{str(opened)!r} is opened here", start_of(opened)))
        elif kind == "NAME":
            if not token.isidentifier():
                bad = next((c for c in token if not f"a{c}".isidentifier()), token[0])
                raise Problem("syntax", start, end, f"the character {_char(bad)} cannot be part of a name")
        elif kind == "NUMBER":
            if not _NUMBER.fullmatch(token):
                if token[-1] in "jJ" and _NUMBER.fullmatch(token[:-1]):
                    raise unsupported("complex", start, end)
                help = "an octal number starts with 0o" if re.fullmatch(r"0\d+", token) else None
                raise Problem("syntax", start, end, f"expected a number, found {str(token)!r}", help)
        elif kind in self.always_accept:
            raise self._refused(token, start, end)

    def _refused(self, token: Token, start: int, end: int) -> Problem:
        match token.type:
            case "RESERVED":
                return unsupported(_RESERVED.get(token, str(token)), start, end)
            case "PREFIXED":
                return unsupported("bytes" if "b" in token.lower() else "f-string", start, end + 1)
            case "OPEN_STRING":
                return Problem("syntax", start, end, f"the string that starts with {token!s} has no end")
            case "LBRACE" | "RBRACE":
                return unsupported("dict", start, end)
            case "SEMICOLON":
                return unsupported("semicolon", start, end)
            case "WALRUS":
                return unsupported("walrus", start, end)
            case _:
                what = (
                    "a backslash continues a line only at its end"
                    if token == "\\"
                    else f"unexpected character {_char(token)}"
                )
                help = "write 'a != b' or 'not a'" if token == "!" else None
                return Problem("syntax", start, end, what, help)


def _columns(indent: str) -> tuple[int, int]:
    """The width of an indentation with tab stops of 8 and of 1; two lines compare only where both agree."""
    wide = narrow = 0
    for char in indent:
        if char == "\f":
            wide = narrow = 0
        else:
            wide = wide // 8 * 8 + 8 if char == "\t" else wide + 1
            narrow += 1
    return wide, narrow


def _char(char: str) -> str:
    name = unicodedata.name(char, "")
    return repr(str(char)) + (f" ({name})" if name and not char.isascii() else "")


def explain(token: Token, accepts: set[str], layout: Layout, spelling: dict[str, str], text: str) -> Problem:
    """The error for a token that the grammar does not have at its place. `accepts` are the terminals that could stand
    there, `spelling` gives the text of a terminal that has only one."""
    kind, start, end = token.type, start_of(token), end_of(token)
    tokens = layout.tokens[:-1] if layout.tokens and layout.tokens[-1] is token else layout.tokens
    brackets = [b for b in layout.brackets if b is not token]
    before = tokens[-1] if tokens else None
    could = {spelling.get(a, a) for a in accepts}
    wants_value = "NUMBER" in could
    fresh = before is None or before.type in ("_NL", "_INDENT", "_DEDENT")  # the token starts a statement
    on_new_line = before is not None and any(c in "\r\n" for c in text[end_of(before) : start])

    if brackets and on_new_line and (token in _STATEMENTS or token == "for" or _is_left_of(start, brackets[-1], text)):
        return layout._unclosed(brackets[-1])
    if kind == "_INDENT":
        return Problem("indentation", end, end, "this line is indented, and the line above it starts no block")
    if "_INDENT" in could:
        what = f"expected an indented block after {_header(tokens)}, found {_found(token)}"
        at = _words_end(tokens) if kind == "$END" else start
        return Problem("indentation", at, at if kind == "$END" else end, what, "indent the body, or write 'pass'")
    construct = _construct(token, before, wants_value, fresh, brackets, could, text)
    if construct:
        return unsupported(construct, start, start + 3 if construct == "ellipsis" else end)
    if before == ":" and token in _HEADERS and kind != "NAME":
        return Problem(
            "syntax", start, end, f"expected {str(token)!r} on a line of its own, below this one and indented"
        )
    if token in ("else", "elif") and fresh:
        if _sibling(tokens, start, text) in ("for", "while") and token == "else":
            return unsupported("loop-else", start, end)
        return Problem("syntax", start, end, f"{str(token)!r} has no 'if' at the same indentation before it")
    if on_new_line or kind in ("_NL", "$END", "_DEDENT"):
        start = end = end_of(before) if before is not None else start
    header = ":" in could and "=" not in could and not brackets and not wants_value
    expected = [f"':' after {_header(tokens)}"] if header else _expected(could, wants_value, bool(brackets))
    help = "a comparison is written '=='" if token == "=" and (header or "==" in could) else None
    return Problem("syntax", start, end, f"expected {_either(expected)}, found {_found(token)}", help)


def _construct(
    token: Token,
    before: Token | None,
    wants_value: bool,
    fresh: bool,
    brackets: list[Token],
    could: set[str],
    text: str,
) -> str | None:
    """The Python construct that an unexpected token starts, if it is one."""
    in_params = wants_value is False and "NAME" in could and bool(brackets)
    previous = str(before) if before is not None else ""
    match str(token):
        case "for" if brackets and not wants_value:
            return "comprehension"
        case "*" | "**" if wants_value:
            return "star-argument" if brackets else "star-target"
        case "**" if in_params:
            return "star-parameter"
        case "*" if previous == "import":
            return "star-import"
        case "/" if in_params or (brackets and "NAME" not in could and "=" in could):
            return "positional-only"
        case "[" if wants_value:
            return "list"
        case "[" if "(" in could and "NAME" not in could and "." not in could:
            return "type-parameter"
        case "@" if fresh:
            return "decorator"
        case "." if wants_value and text.startswith("...", start_of(token)):
            return "ellipsis"
        case "in" | "not" if not wants_value and not fresh:
            return "membership"
        case "import" if fresh:
            return "import"
        case "else":
            return None
    if previous in ("match", "type") and token.type == "NAME":
        return "match" if previous == "match" else "type-alias"
    return (
        "star-parameter"
        if previous == "*" and token.type == "NAME" and in_params is False and brackets and "," in could
        else None
    )


def _words_end(tokens: list[Token]) -> int:
    """Where the last line that has words ends."""
    return next((end_of(t) for t in reversed(tokens) if t.type not in ("_NL", "_INDENT", "_DEDENT")), 0)


def _indent(at: int, text: str) -> int:
    """By how many characters the line of an offset is indented."""
    line = at = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    while at < len(text) and text[at] in " \t\f":
        at += 1
    return at - line


def _is_left_of(start: int, bracket: Token, text: str) -> bool:
    """Whether the line of `start` is indented no more than the line on which the bracket was opened."""
    return _indent(start, text) <= _indent(start_of(bracket), text)


def _sibling(tokens: list[Token], start: int, text: str) -> str:
    """The first word of the statement before `start` that has the same indentation."""
    own = _indent(start, text)
    layout = ("_NL", "_INDENT", "_DEDENT")
    pairs = zip(reversed(tokens[:-1]), reversed(tokens), strict=False)
    firsts = (token for before, token in pairs if before.type in layout and token.type not in layout)
    return next((str(token) for token in firsts if _indent(start_of(token), text) == own), "")


def _header(tokens: list[Token]) -> str:
    """What the last logical line is, when it starts a block."""
    for token in reversed(tokens):
        if token in _HEADERS and token.type not in ("NAME", "STRING"):
            return _HEADERS[str(token)]
    return "this line"


def _expected(could: set[str], wants_value: bool, in_brackets: bool) -> list[str]:
    if wants_value:
        return ["an expression", *(f"{c!r}" for c in (")", "]") if c in could)]
    single = [w for w in ("in", "else", "import") if w in could]
    if single:
        return [f"{w!r}" for w in single]
    words = ["a name"] if "NAME" in could else []
    operand_done = "+" in could
    marks = (",", ")", "]") if operand_done and in_brackets else ("(", ",", ")", "]", ":", "=", "as", "*")
    if operand_done and not in_brackets:
        words.append("an operator")
    else:
        words += [f"{m!r}" for m in marks if m in could]
    if "_NL" in could:
        words.append(_WORDS["_NL"])
    return words or [_WORDS["$END"]]


def _found(token: Token) -> str:
    if token.type in _WORDS:
        return _WORDS[token.type]
    names = {"NAME": f"name {str(token)!r}", "NUMBER": f"number {token}", "STRING": "a string"}
    return names.get(token.type, f"the keyword {str(token)!r}" if token.isalpha() else repr(str(token)))


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
