"""`agentrl chat`: chat with a model in the terminal or in a browser."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentrl import extras
from agentrl.cli.model_options import CHECKPOINT, GREEDY, MODEL, OVERRIDES
from agentrl.cli.terminal_output import LINE_S
from agentrl.errors import ConfigError
from agentrl.text.formatting import printable
from agentrl.text.name_suggestions import known_names

if TYPE_CHECKING:
    from agentrl.training.inference.background_model import ModelThread
    from agentrl.training.inference.chat_history import ChatHistory
    from agentrl.types import Image


def chat(
    model: MODEL,
    overrides: OVERRIDES = None,
    system: Annotated[str, typer.Option(help="System message.")] = "",
    greedy: GREEDY = False,
    checkpoint: CHECKPOINT = None,
    browser: Annotated[bool, typer.Option("--browser", help="Chat on a web page.")] = False,
    port: Annotated[
        int, typer.Option(help="Port of the page; 0 picks a free one.", min=0, max=65535)
    ] = 8200,
) -> None:
    """Chat with a model, also about images; type /help for its commands.

    Example: agentrl chat Qwen/Qwen2.5-VL-3B-Instruct --system "Answer briefly."
    """
    from agentrl.training.inference.background_model import ModelThread
    from agentrl.training.inference.chat_history import ChatHistory
    from agentrl.training.inference.inference_model import open_chat_target

    _say(f"checking {model}")
    target = open_chat_target(model, overrides or (), checkpoint)
    with ExitStack() as opened:
        # Loading may take minutes, during which the engine prints nothing.
        with _waiting(model, target.plan.settings.rollout.engine, served=target.policy.is_served):
            started = opened.enter_context(ModelThread(target, greedy=greedy))
        if started.engine_check is not None:
            _say(str(started.engine_check))
        if browser:
            _chat_in_browser(started, ChatHistory(system), model, port)
        else:
            _TerminalChat(started, ChatHistory(system)).run()


@contextmanager
def _waiting(model: str, engine: str, *, served: bool) -> Iterator[None]:
    """Show what the chat is waiting for before the first message, and for how long."""
    from agentrl.training.monitoring.progress import show_engine_start

    what = "connecting to the server" if served else f"loading {model}"
    last = time.monotonic()

    def report(done: float, count: float, note: str) -> None:
        nonlocal last
        if time.monotonic() - last > LINE_S:
            last = time.monotonic()
            _say(note)

    _say(f"{what} (rollout.engine={engine})")
    with show_engine_start(engine, 1, report):
        yield
    _say("ready")


def _chat_in_browser(model: "ModelThread", history: "ChatHistory", title: str, port: int) -> None:
    try:
        from agentrl.viewer.viewer_server import serve_chat
    except ImportError as error:
        raise ConfigError(
            f"--browser needs {error.name}, which is not installed; run: {extras.GET_PAGE}"
        ) from None
    serve_chat(
        model,
        history,
        title=title,
        port=port,
        ready=lambda url: typer.echo(f"{url}  (Ctrl-C stops it)"),
    )


def _say(text: str) -> None:
    """Print a line that is not part of the conversation."""
    sys.stderr.write(printable(text) + "\n")


class _TerminalChat:
    """Chat in the terminal, or with messages from a pipe.

    Args:
        model: the model to chat with.
        history: an empty history for the chat.
    """

    def __init__(self, model: "ModelThread", history: "ChatHistory") -> None:
        self._model, self._history = model, history
        self._images: list[Image] = []
        """Images of the next message."""
        self._commands: dict[str, tuple[str, Callable[[str], None]]] = {
            "/image": ("PATH  attach an image to the next message", self._attach),
            "/reset": ("start a new conversation", self._reset),
            "/save": ("FILE.jsonl  append the conversation as a row for agentrl sft", self._save),
            "/help": ("show this list", self._help),
            "/quit": ("end the chat; so does Ctrl-D", self._quit),
        }
        self._is_over = False

    def run(self) -> None:
        """Chat until the input ends."""
        prompt = ""
        if sys.stdin.isatty():
            with suppress(ImportError):  # Python may be built without readline
                import readline  # noqa: F401  # lets the user edit the line that `input` reads
            prompt = "> "
            self._help("")
        while not self._is_over:
            try:
                text = _read_message(prompt)
            except EOFError:
                break
            except KeyboardInterrupt:
                _say("\nCtrl-D or /quit ends the chat")
                continue
            try:
                self._take(text)
            except ConfigError as error:
                _say(str(error))

    def _take(self, text: str) -> None:
        name, _, rest = text.strip().partition(" ")
        if name.startswith("/"):
            if name not in self._commands:
                hint = known_names(name, self._commands, label="There are")
                raise ConfigError(f"{name}: no such command{hint}")
            self._commands[name][1](rest.strip())
        elif text.strip() or self._images:
            self._ask(text)

    def _ask(self, text: str) -> None:
        from agentrl.errors import EngineError

        self._history.ask(text, self._images)
        self._images = []
        printer = _ReplyPrinter()
        reply = self._model.start_reply(self._history.system, self._history.messages, printer.show)
        try:
            found = reply.result()
        except KeyboardInterrupt:
            reply.cancel()
            self._withdraw("\nstopped; your message was dropped")
        except (ValueError, EngineError) as error:
            self._withdraw(f"{error}. Your message was dropped; /reset starts a new conversation")
        else:
            printer.finish(found.text)
            self._history.answer(found.text)
            if found.finish_reason == "length":
                _say("(cut off at rollout.max_new_tokens)")

    def _withdraw(self, why: str) -> None:
        self._history.withdraw()
        _say(why)

    def _attach(self, typed: str) -> None:
        from agentrl.data.image_loading import ImageError, load_image

        if not typed:
            raise ConfigError("/image needs the path of an image file")
        with suppress(ValueError):  # an unclosed quote
            words = shlex.split(typed)
            typed = words[0] if len(words) == 1 else typed
        path = Path(typed).expanduser().resolve()
        try:
            image = load_image(path, path.parent)
        except ImageError as error:
            raise ConfigError(str(error)) from None
        self._images.append(image)
        _say(f"image {len(self._images)}: {path.name}, {image.shape[1]}x{image.shape[0]}")

    def _reset(self, rest: str) -> None:
        self._history.reset()
        self._images = []
        _say("new conversation")

    def _save(self, typed: str) -> None:
        if not typed:
            raise ConfigError("/save needs the name of a .jsonl file")
        path = Path(typed).expanduser()
        self._history.save(path)
        _say(f"saved to {path}")

    def _help(self, rest: str) -> None:
        for name, (what, _) in self._commands.items():
            _say(f"{name} {what}" if what[0].isupper() else f"{name}  {what}")
        _say("End a line with \\ to continue on the next one. Ctrl-C stops a reply.")

    def _quit(self, rest: str) -> None:
        self._is_over = True


def _read_message(prompt: str) -> str:
    """Read a message; a backslash at the end of a line continues it on the next line."""
    lines = [input(prompt)]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input("." * len(prompt.strip()) + prompt[-1:]))
    return "\n".join(lines)


class _ReplyPrinter:
    """Prints a reply as it grows, with terminal control characters escaped."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, text: str) -> None:
        """Print the new part of the reply so far."""
        text = text.rstrip("\ufffd")  # stands for a character whose bytes are still incomplete
        if text.startswith(self._shown):
            self._write(text[len(self._shown) :])
            self._shown = text

    def finish(self, text: str) -> None:
        """Print the rest of the reply."""
        if not text.startswith(self._shown):  # the part already printed was decoded differently
            self._write("\n")
            self._shown = ""
        self._write(text[len(self._shown) :] + "\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(printable(text.replace("\t", "    ")))
        sys.stdout.flush()
