r"""Parse shell scripts into pipelines of commands.

::

    script   = pipeline { (";" | "&&" | "||" | "&" | newline) pipeline }
    pipeline = ["!"] command { "|" command }
    command  = { assignment } { word | redirection } | compound { redirection }
    compound = "(" script ")" | "{" script "}" | "((" expression "))" | "[[" words "]]"
             | if | while | until | for | case | name "()" command | "function" name command

This is mksh's grammar without arrays, coprocesses, `select` and patterns such as `@(a|b)`.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from virtual_phone.shell.field_splitting import is_literal
from virtual_phone.shell.lexer import ShellLexer
from virtual_phone.shell.syntax_tree import (
    Arithmetic,
    Assignment,
    Case,
    Compound,
    Conditional,
    For,
    FunctionDefinition,
    Group,
    If,
    Loop,
    Pipeline,
    Redirect,
    Script,
    ShellCommand,
    ShellSyntaxError,
    Word,
    WordPart,
)

_CLOSING = frozenset(("then", "elif", "else", "fi", "do", "done", "esac", "}"))
_SEPARATORS = frozenset((";", "&", "\n", "&&", "||"))
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_ARRAY_ELEMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[[^]]*\]\+?=")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@lru_cache(maxsize=256)
def parse(script: str) -> Script:
    """Parse a script. Results are cached, since the same scripts recur."""
    return _Parser(ShellLexer(script, _nested)).whole_script()


def _nested(lexer: ShellLexer) -> Script:
    """Parse the script of a `$(`, including its `)`."""
    parser = _Parser(lexer)
    script = parser.script(")")
    parser.expect(")", can_continue=False)
    return script


class _Parser:
    """Recursive-descent parser over the tokens of a lexer, with one token of lookahead."""

    def __init__(self, lexer: ShellLexer) -> None:
        self._lexer = lexer
        self._token: Word | str | None = None
        self._reserved = ""
        """Current token if it is an operator or an unquoted word, else ''."""
        self._advance()

    def whole_script(self) -> Script:
        """Parse to the end of the text."""
        script = self.script()
        if self._token is not None:
            raise self._unexpected()
        return script

    def script(self, *ends: str) -> Script:
        """Parse up to one of the operators or reserved words `ends`, without consuming it."""
        pipelines: list[Pipeline] = []
        joint = ";"
        self._skip_newlines()
        while self._token is not None and self._reserved not in ends:
            pipelines.append(self._pipeline(joint))
            separator = self._token
            if not isinstance(separator, str) or separator not in _SEPARATORS:
                break
            pipelines[-1].background = separator == "&"
            joint = separator if separator in ("&&", "||") else ";"
            self._advance()
            self._skip_newlines()
            if joint != ";" and (self._token is None or self._reserved in ends):
                raise self._unexpected()
        return pipelines

    def expect(self, word: str, *, can_continue: bool = True) -> None:
        """Consume an operator or a reserved word."""
        if self._reserved != word:
            raise self._unexpected()
        if can_continue:
            self._advance()

    def _advance(self) -> None:
        self._token = token = self._lexer.token()
        if token is None or isinstance(token, str):
            self._reserved = token or ""
            return
        first = token[0]
        is_plain = len(token) == 1 and first.kind == "text" and not first.quoted
        self._reserved = first.text if is_plain else ""

    def _skip_newlines(self) -> None:
        while self._token == "\n":
            self._advance()

    def _unexpected(self) -> ShellSyntaxError:
        token = self._token
        text = token if isinstance(token, str) else "".join(part.text for part in token or ())
        shown = "newline" if text == "\n" else text or "end of file"
        message = f"syntax error: unexpected '{shown}'"
        return ShellSyntaxError(message, is_incomplete=token is None)

    def _pipeline(self, joint: str) -> Pipeline:
        negated = False
        while self._reserved == "!" and not isinstance(self._token, str):
            negated = not negated
            self._advance()
        commands = [self._command()]
        while self._token == "|":
            self._advance()
            self._skip_newlines()
            commands.append(self._command())
        return Pipeline(joint=joint, commands=commands, negated=negated)

    def _command(self) -> ShellCommand:
        command = ShellCommand()
        reserved = self._reserved
        if reserved == "(":
            command.compound = self._parentheses()
        elif reserved in _COMPOUNDS:
            self._deeper()
            command.compound = _COMPOUNDS[reserved](self)
            self._lexer.depth -= 1
        elif reserved in _CLOSING:
            raise self._unexpected()
        else:
            self._simple(command)
            return command
        while self._is_redirect():
            command.redirects += self._redirects()
        return command

    def _deeper(self) -> None:
        self._lexer.depth += 1
        self._lexer.check_depth()

    def _simple(self, command: ShellCommand) -> None:
        """Parse assignments, words and redirections, or a function definition."""
        while True:
            token = self._token
            if token is not None and not isinstance(token, str):
                assignment = None if command.words else _assignment(token)
                if assignment is not None:
                    command.assignments.append(assignment)
                else:
                    command.words.append(token)
                self._advance()
            elif self._is_redirect():
                command.redirects += self._redirects()
            elif token == "(" and len(command.words) == 1 and not command.assignments:
                name = _text(command.words.pop())
                self._advance()
                self.expect(")")
                command.compound = self._definition(name)
                return
            else:
                break
        if not (command.words or command.assignments or command.redirects):
            raise self._unexpected()
        if all(len(word) == 1 and is_literal(word[0]) for word in command.words):
            command.texts = [word[0].text for word in command.words]

    def _is_redirect(self) -> bool:
        token = self._token
        return isinstance(token, str) and (token == "&>" or token.lstrip("0123456789")[:1] in "<>")

    def _redirects(self) -> list[Redirect]:
        """Parse a redirection; `&>` yields two."""
        operator = self._token
        assert isinstance(operator, str)
        digits = operator[:1] if operator[0].isdigit() else ""
        operator = operator[len(digits) :]
        fd = int(digits) if digits else 0 if operator[0] == "<" else 1
        if operator[:2] in (">&", "<&"):
            self._advance()
            return [Redirect(fd=fd, operator=operator[:2], target=_literal(operator[2:]))]
        self._advance()
        word = self._token
        if word is None or isinstance(word, str):
            raise self._unexpected()
        if operator == "&>":
            self._advance()
            both = Redirect(fd=2, operator=">&", target=_literal("1"))
            return [Redirect(fd=1, operator=">", target=word), both]
        redirect = Redirect(fd=fd, operator=operator.rstrip("|"), target=word)
        if operator in ("<<", "<<-"):
            self._lexer.expect_document(redirect)
        self._advance()
        return [redirect]

    def _parentheses(self) -> Compound:
        self._deeper()
        expression = self._lexer.arithmetic_command()
        if expression is not None:
            self._lexer.depth -= 1
            self._advance()
            return Arithmetic(expression=expression)
        self._advance()
        group = Group(body=self._body(")"), is_subshell=True)
        self._lexer.depth -= 1
        self.expect(")")
        return group

    def _body(self, *ends: str) -> Script:
        """Parse a script that must contain a command."""
        script = self.script(*ends)
        if not script or self._reserved not in ends:
            raise self._unexpected()
        return script

    def _braces(self) -> Compound:
        self._advance()
        group = Group(body=self._body("}"))
        self.expect("}")
        return group

    def _if(self) -> Compound:
        branches: list[tuple[Script, Script]] = []
        while self._reserved in ("if", "elif"):
            self._advance()
            condition = self._body("then")
            self.expect("then")
            branches.append((condition, self._body("elif", "else", "fi")))
        if self._reserved == "else":
            self._advance()
            branches.append(((), self._body("fi")))
        self.expect("fi")
        return If(branches=branches)

    def _loop(self) -> Compound:
        is_until = self._reserved == "until"
        self._advance()
        condition = self._body("do")
        return Loop(condition=condition, body=self._do(), is_until=is_until)

    def _do(self) -> Script:
        self.expect("do")
        body = self._body("done")
        self.expect("done")
        return body

    def _for(self) -> Compound:
        self._advance()
        name = self._reserved
        if not _NAME.fullmatch(name):
            raise self._unexpected()
        self._advance()
        self._skip_newlines()
        words: list[Word] | None = None
        if self._reserved == "in":
            words = []
            self._advance()
            while self._token is not None and not isinstance(self._token, str):
                words.append(self._token)
                self._advance()
        if self._token == ";":
            self._advance()
        self._skip_newlines()
        return For(name=name, words=words, body=self._do())

    def _case(self) -> Compound:
        self._advance()
        word = self._word()
        self._skip_newlines()
        self.expect("in")
        self._skip_newlines()
        arms: list[tuple[Sequence[Word], Script]] = []
        while self._reserved != "esac":
            if self._token == "(":
                self._advance()
            patterns = [self._word()]
            while self._token == "|":
                self._advance()
                patterns.append(self._word())
            self.expect(")")
            arms.append((patterns, self.script(";;", "esac")))
            if self._reserved == ";;":
                self._advance()
                self._skip_newlines()
            elif self._reserved != "esac":
                raise self._unexpected()
        self.expect("esac")
        return Case(word=word, arms=arms)

    def _word(self) -> Word:
        word = self._token
        if word is None or isinstance(word, str):
            raise self._unexpected()
        self._advance()
        return word

    def _function(self) -> Compound:
        self._advance()
        name = _text(self._word())
        if self._token == "(":
            self._advance()
            self.expect(")")
        return self._definition(name)

    def _definition(self, name: str) -> Compound:
        if not re.fullmatch(r"[\w.:-]+", name):
            raise ShellSyntaxError(f"{name}: invalid function name")
        self._skip_newlines()
        self._deeper()
        body = self._command()
        self._lexer.depth -= 1
        if body.compound is None:
            raise ShellSyntaxError(f"syntax error: the body of {name}() must be in braces")
        return FunctionDefinition(name=name, body=body)

    def _conditional(self) -> Compound:
        self._advance()
        tokens: list[Word | str] = []
        while self._reserved != "]]":
            if self._token is None:
                raise self._unexpected()
            if self._token != "\n":
                tokens.append(self._token)
            self._advance()
        self.expect("]]")
        return Conditional(tokens=tokens)


_COMPOUNDS: dict[str, Callable[[_Parser], Compound]] = {
    "{": _Parser._braces,
    "[[": _Parser._conditional,
    "if": _Parser._if,
    "while": _Parser._loop,
    "until": _Parser._loop,
    "for": _Parser._for,
    "case": _Parser._case,
    "function": _Parser._function,
}
"""Parsers of compound commands by first word."""


def _literal(text: str) -> Word:
    return (WordPart(kind="text", text=text, quoted=True),)


def _text(word: Word) -> str:
    return "".join(part.text for part in word)


def _assignment(word: Word) -> Assignment | None:
    """Parse a word as an assignment; None if it is not an assignment."""
    first = word[0]
    if first.kind != "text" or first.quoted or "=" not in first.text:
        return None
    if _ARRAY_ELEMENT.match(first.text):
        raise ShellSyntaxError(f"{first.text}: arrays are not supported")
    found = _ASSIGNMENT.match(first.text)
    if found is None:
        return None
    rest = first.text[found.end() :]
    value = (WordPart(kind="text", text=rest, quoted=False), *word[1:]) if rest else word[1:]
    return Assignment(name=found[1], appends=bool(found[2]), value=value)
