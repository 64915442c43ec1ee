"""Expand the words of a script in a shell: parameters, commands, arithmetic, file names."""

from collections.abc import Awaitable, Callable, Sequence

from virtual_phone.shell.arithmetic import ArithmeticFailure, evaluate
from virtual_phone.shell.field_splitting import (
    BRACES,
    DEFAULT_IFS,
    MAX_LENGTH,
    Field,
    Piece,
    fields_of,
    is_literal,
)
from virtual_phone.shell.glob_patterns import compile_glob, trim
from virtual_phone.shell.shell_state import ShellFailure, ShellState
from virtual_phone.shell.syntax_tree import Assignment, Script, Word, WordPart


class WordExpander:
    """Expands words into text, using the state of a shell."""

    def __init__(self, state: ShellState, output_of: Callable[[Script], Awaitable[str]]) -> None:
        self._state = state
        # Runs a script and returns its output, for `$(...)`.
        self._output_of = output_of

    async def expanded(self, words: Sequence[Word]) -> list[str]:
        """Expand words into arguments."""
        texts: list[str] = []
        for word in words:
            text = self._literal_text(word)
            if text is not None:
                texts.append(text)
            else:
                texts += await self._arguments(word)
        return texts

    async def _arguments(self, word: Word) -> list[str]:
        """Expand a word into arguments: parameters, fields, file names and a tilde."""
        state, texts = self._state, []
        if BRACES.search("".join(p.text for p in word if p.kind == "text" and not p.quoted)):
            state.complain("{...,...}: brace expansion is not supported")
            raise ShellFailure(1)
        pieces = await self._pieces(word)
        for field in fields_of(pieces, state.environment.get("IFS", DEFAULT_IFS)):
            if "f" in state.options:
                texts.append(field.text)
            else:
                texts += field.paths(state.phone.files, state.environment["PWD"])
        first = word[0]
        is_tilde = first.kind == "text" and not first.quoted and first.text[:1] == "~"
        if is_tilde and texts and texts[0][1:2] in ("", "/"):
            home = state.environment.get("HOME", "").rstrip("/")
            texts[0] = home + texts[0][1:] or "/"
        return texts

    async def assign(self, assignment: Assignment) -> None:
        """Expand and perform an assignment."""
        state, value = self._state, await self.text_of(assignment.value)
        if value[:1] == "~" and value[1:2] in ("", "/") and not assignment.value[0].quoted:
            value = state.environment.get("HOME", "") + value[1:]
        old = state.environment.get(assignment.name, "") if assignment.appends else ""
        state.assign(assignment.name, old + value)

    def _literal_text(self, word: Word) -> str | None:
        """Expand a simple word such as `==$?`; None if it needs full expansion.

        Most words are simple, and this is faster.
        """
        text, state = "", self._state
        for part in word:
            value = part.text
            if part.kind == "name" and not part.operator and value not in ("@", "*"):
                value = state.parameter(value) or ""
                is_one = value.isalnum() and state.environment.get("IFS") == DEFAULT_IFS
                if not value or not (part.quoted or is_one):
                    return None
            elif not is_literal(part):
                return None
            text += value
        return text if len(text) <= MAX_LENGTH else None

    async def text_of(self, word: Word) -> str:
        """Expand a word into a single string, without splitting it."""
        if len(word) == 1 and word[0].kind == "text":
            return word[0].text
        return (await self.field_of(word)).text

    async def field_of(self, word: Word) -> Field:
        """Expand a word into one argument or pattern, without splitting it."""
        field = Field()
        for piece in await self._pieces(word):
            if piece is None:
                field.add(" ", quoted=True)
            else:
                field.add(piece[0], piece[1])
        return field

    async def _pieces(self, word: Word, *, splits_text: bool = False) -> list[Piece | None]:
        """Expand a word into pieces; None separates fields that are not joined."""
        pieces: list[Piece | None] = []
        for part in word:
            if part.kind == "text":
                pieces.append((part.text, part.quoted, splits_text and not part.quoted))
            elif part.kind == "name":
                pieces += await self._parameter_pieces(part)
            elif part.kind == "script":
                pieces.append((await self._output_of(part.script), part.quoted, not part.quoted))
            else:
                value = self.number(await self.text_of(part.operand))
                pieces.append((str(value), part.quoted, not part.quoted))
        if not self._state.positional and all(
            piece is None or piece[:2] == ("", True) for piece in pieces
        ):
            has_all = any(p.kind == "name" and p.text == "@" and p.quoted for p in word)
            return [] if has_all else pieces
        return pieces

    def number(self, expression: str) -> int:
        """Evaluate an arithmetic expression."""
        for name in ("RANDOM", "SECONDS"):
            if name in expression:
                self._state.environment[name] = self._state.parameter(name) or ""
        try:
            return evaluate(expression, self._state.environment)
        except ArithmeticFailure as error:
            self._state.complain(str(error))
            raise ShellFailure(1) from None

    async def _parameter_pieces(self, part: WordPart) -> list[Piece | None]:
        name, operator, quoted = part.text, part.operator, part.quoted
        if name in ("@", "*") and not operator:
            return self._all_parameters(is_joined=name == "*", quoted=quoted)
        value = self._state.parameter(name)
        if operator[-1:] in ("-", "=", "?", "+") and operator:
            return await self._default(part, value)
        # As in POSIX, `set -u` does not apply to `$@` and `$*`.
        if value is None and "u" in self._state.options and name not in ("@", "*"):
            self._state.complain(f"{name}: parameter not set")
            raise ShellFailure(1)
        value = value or ""
        if operator == "length":
            value = str(len(self._state.positional) if name in ("@", "*") else len(value))
        elif operator[:1] in ("#", "%") and operator:
            value = trim(value, operator, (await self.field_of(part.operand)).pattern)
        elif operator[:1] == "/":
            value = await self._replaced(value, part)
        elif operator == ":":
            start_text, colon, length_text = (await self.text_of(part.operand)).partition(":")
            start = self.number(start_text)
            value = value[start if start >= -len(value) else 0 :]
            value = value[: self.number(length_text)] if colon else value
        return [(value, quoted, not quoted)]

    def _all_parameters(self, *, is_joined: bool, quoted: bool) -> list[Piece | None]:
        """Expand `$@` or `$*`."""
        if quoted and is_joined:
            between = self._state.environment.get("IFS", DEFAULT_IFS)[:1]
            return [(between.join(self._state.positional), True, False)]
        pieces: list[Piece | None] = []
        for number, value in enumerate(self._state.positional):
            pieces += [None] if number else []
            pieces.append((value, quoted, not quoted))
        return pieces

    async def _default(self, part: WordPart, value: str | None) -> list[Piece | None]:
        """Expand `${x:-word}`, `:=`, `:?` or `:+`; without the colon, '' counts as set."""
        is_set = value is not None and (value != "" or part.operator[0] != ":")
        verb = part.operator[-1]
        if verb == "+":
            return await self._pieces(part.operand, splits_text=True) if is_set else []
        if is_set:
            return [(value or "", part.quoted, not part.quoted)]
        if verb == "-":
            return await self._pieces(part.operand, splits_text=True)
        text = await self.text_of(part.operand)
        if verb == "?":
            self._state.complain(f"{part.text}: {text or 'parameter null or not set'}")
            raise ShellFailure(1)
        self._state.assign(part.text, text)
        return [(text, part.quoted, not part.quoted)]

    async def _replaced(self, value: str, part: WordPart) -> str:
        """Expand `${x/pattern/text}`, or `//`, which replaces every occurrence."""
        pattern = (await self.field_of(part.operand)).pattern
        text = await self.text_of(part.replacement)
        anchors = {"#": "^", "%": "$"}.get(pattern[:1], "")
        if not pattern[bool(anchors) :]:
            return value
        compiled = compile_glob(pattern[bool(anchors) :], anchors)
        count = 0 if part.operator == "//" else 1
        replaced = compiled.sub(lambda _: text, value, count)
        if len(replaced) > MAX_LENGTH:
            raise OSError(12, "Cannot allocate memory", part.text)
        return replaced
