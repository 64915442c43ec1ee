"""A file that a client pushes, while it comes."""

from agentrl.virtual_phone.system.file_system import Files


class Upload:
    """A file on its way to the phone; it takes room from its first byte on."""

    def __init__(self, files: Files, path: str, mode: int | None) -> None:
        """Nothing of it has come yet.

        Args:
            files: of the phone.
            path: where it goes.
            mode: its permissions; None for one that cannot be read.
        """
        self._files = files
        self._path = path
        self._mode = mode
        self._content = bytearray()
        self._fault = None if mode is not None else OSError(22, "Invalid argument")

    def take(self, chunk: bytes) -> None:
        """Keep some more of it, unless it cannot be stored anyway."""
        try:
            if self._fault is None:
                self._files.reserve(len(chunk))
                self._content += chunk
        except OSError as error:
            self._fault = error

    def store(self, mtime: int) -> OSError | None:
        """Make it a file; gives what keeps it from being one."""
        content = bytes(self._content)
        self.release()
        try:
            if self._fault is None:
                self._files.make_folders(self._path.rpartition("/")[0] or "/")
                self._files.write(self._path, content, mode=self._mode or 0, mtime=mtime)
        except OSError as error:
            self._fault = error
        return self._fault

    def release(self) -> None:
        """Give the room back."""
        self._files.release(len(self._content))
        self._content.clear()
