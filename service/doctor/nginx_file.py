"""Reads an nginx configuration, as far as it takes to know which directives hold where.

It is no judge of the file: what nginx would refuse may be read here, and `nginx -t` says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from service.doctor.nginx_names import begins_directive

# More files or blocks inside each other are a mistake, or a loop that links have hidden.
_MAX_DEPTH = 32
_MAX_FILES = 256

# In this order: a comment, a quoted text, a mark, a word. A brace inside a word, as in ${host}, belongs to the word.
_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*) | "(?P<double>(?:\\.|[^"\\])*)" | '(?P<single>(?:\\.|[^'\\])*)' | (?P<mark>[{};])
        | (?P<word>(?:\$\{[^}\s]*\}|\\.|[^\s{};"'\\])(?:\$\{[^}\s]*\}|\\.|[^\s{};\\])*)""",
    re.VERBOSE | re.DOTALL,
)

_ESCAPED_QUOTE = re.compile(r"""\\(["'])""")


# So much of a word is shown in a message.
_MAX_SHOWN_CHARS = 60


class NginxError(Exception):
    """The file cannot be read, or is no nginx configuration; the message says where."""


class _Token(NamedTuple):
    """`kind`: the name of the group in the expression above. `line`: the one that it begins in."""

    text: str
    kind: str
    line: int


@dataclass(slots=True)
class Block:
    """`name` and `args` as written; `inside`: its directives in order, with those of included files in their place.

    `place`: the file and the line that it begins in.
    """

    name: str
    args: tuple[str, ...] = ()
    inside: list[Block] = field(default_factory=list)
    place: str = ""

    def named(self, name: str) -> list[Block]:
        """The directives of this name that stand directly inside."""
        return [each for each in self.inside if each.name == name]


@dataclass(frozen=True, slots=True)
class NginxFile:
    """`root`: a block around everything. `left_out`: includes that were not followed, each with the reason."""

    root: Block
    left_out: tuple[str, ...]


def read_nginx(path: Path) -> NginxFile:
    """The file with what it includes from its own directory and below it; includes from elsewhere are left out.

    Raises NginxError.
    """
    return _Reader(path).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._home = path.resolve().parent
        self._left_out: list[str] = []
        self._files = 0

    def read(self) -> NginxFile:
        root = Block("")
        root.inside = self._file(self._path.resolve(), depth=0)
        return NginxFile(root, tuple(self._left_out))

    def _file(self, path: Path, depth: int) -> list[Block]:
        self._files += 1
        if depth > _MAX_DEPTH or self._files > _MAX_FILES:
            raise NginxError(f"{path.name}: the includes lead to each other without an end")
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as fault:
            raise NginxError(f"{path.name} cannot be read: {fault.strerror}") from fault
        tokens = _tokens(text, path.name)
        return self._blocks(tokens, path.name, depth, is_inside=False)

    def _blocks(self, tokens: Iterator[_Token], name: str, depth: int, *, is_inside: bool) -> list[Block]:
        if depth > _MAX_DEPTH:
            raise NginxError(f"{name}: blocks lie inside each other more than {_MAX_DEPTH} deep")
        found: list[Block] = []
        words: list[_Token] = []
        for token in tokens:
            if token.kind != "mark":
                _refuse_if_it_begins_another(words, token, name)
                words.append(token)
            elif token.text == "}":
                if words:
                    raise NginxError(f"{_after(words[-1], name)}: a ; is missing, for a }} follows")
                if not is_inside:
                    raise NginxError(f"{name}, line {token.line}: a }} stands where no block ends")
                return found
            elif words:
                texts = [word.text for word in words]
                block = Block(texts[0], tuple(texts[1:]), place=f"{name}, line {words[0].line}")
                words = []
                if token.text == "{":
                    block.inside = self._blocks(tokens, name, depth + 1, is_inside=True)
                found += self._included(block, depth) if block.name == "include" else [block]
        if words:
            raise NginxError(f"{_after(words[-1], name)}: a ; is missing: the file ends in the middle of a directive")
        if is_inside:
            raise NginxError(f"{name} ends in the middle of a block: a }} is missing")
        return found

    def _included(self, block: Block, depth: int) -> list[Block]:
        found: list[Block] = []
        for pattern in block.args[:1]:
            # nginx too takes a relative name for one beside the main file, and files in the order of their names.
            target = self._home / pattern
            if ".." in target.parts or not target.is_relative_to(self._home):
                self._left_out.append(f"{pattern}: not below the file's own directory")
                continue
            relative = target.relative_to(self._home).as_posix()
            files = sorted(self._home.glob(relative))
            if not files and not set(pattern) & set("*?["):
                self._left_out.append(f"{pattern}: no such file")
            for file in files:
                if not file.resolve().is_relative_to(self._home):
                    self._left_out.append(f"{pattern}: leads out of the file's own directory")
                elif file.is_file():
                    found += self._file(file.resolve(), depth + 1)
        return found


def _refuse_if_it_begins_another(words: list[_Token], token: _Token, name: str) -> None:
    """Raise NginxError where `token` is no value of the directive that has begun with `words`."""
    if not words or token.kind != "word":
        return
    if begins_directive(token.text, is_first_of_line=token.line > words[-1].line):
        raise NginxError(f"{_after(words[-1], name)}: a ; is missing, for {token.text} begins another directive")


def _after(word: _Token, name: str) -> str:
    return f"{name}, line {word.line}, behind {word.text[:_MAX_SHOWN_CHARS]!r}"


def _tokens(text: str, name: str) -> Iterator[_Token]:
    """Without comments; a quoted mark is no mark."""
    position, line, counted_to = 0, 1, 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            return
        match = _TOKEN.match(text, position)
        if match is None:
            line += text.count("\n", counted_to, position)
            raise NginxError(f"{name}, line {line}: a quotation has no end")
        line, counted_to = line + text.count("\n", counted_to, position), position
        position = match.end()
        kind = match.lastgroup or ""
        if kind != "comment":
            yield _Token(_ESCAPED_QUOTE.sub(r"\1", match[kind]), kind, line)
