import contextlib
import selectors
import socket
import threading

PHONE_LOOPBACK = "127.0.0.2"
"""What the browser of the tests takes for its own machine, as a phone's browser takes the phone."""


class FlakyProxy:
    """`adb reverse` of a phone without adb: its port N leads to port N here, and can be cut."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.swallows_up = False
        """What the phone sends arrives nowhere."""
        self.swallows_down = False
        """What is sent to the phone arrives nowhere."""
        self._cut = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.restore()

    def restore(self) -> None:
        """Connect the ends again, after a cut."""
        self.swallows_up = self.swallows_down = False
        self._cut.clear()
        listener = socket.create_server((PHONE_LOOPBACK, self.port))
        self._thread = threading.Thread(target=self._serve, args=(listener,), daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Drop every connection, and take no other."""
        self._cut.set()
        if self._thread is not None:
            self._thread.join(5)

    def _serve(self, listener: socket.socket) -> None:
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as open_ends:
            open_ends.enter_context(listener)
            selector.register(listener, selectors.EVENT_READ)
            while not self._cut.is_set():
                for key, _ in selector.select(0.01):
                    if key.fileobj is listener:
                        self._join(selector, open_ends, listener)
                    else:
                        self._pass_on(selector, key)

    def _join(
        self,
        selector: selectors.BaseSelector,
        open_ends: contextlib.ExitStack,
        listener: socket.socket,
    ) -> None:
        phone = open_ends.enter_context(listener.accept()[0])
        try:
            here = socket.create_connection(("127.0.0.1", self.port), 5)
        except OSError:
            phone.close()
            return
        open_ends.enter_context(here)
        selector.register(phone, selectors.EVENT_READ, (here, True))
        selector.register(here, selectors.EVENT_READ, (phone, False))

    def _pass_on(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        other, is_up = key.data
        try:
            data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
            if data and not (self.swallows_up if is_up else self.swallows_down):
                other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for end in (key.fileobj, other):
                with contextlib.suppress(KeyError, ValueError):
                    selector.unregister(end)
                end.close()
