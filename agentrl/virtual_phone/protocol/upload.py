"""A file that a client is pushing to the phone."""

from agentrl.virtual_phone.system.file_system import FileSystem


class Upload:
    """An unfinished file; it takes up space on the phone from its first byte on."""

    def __init__(self, files: FileSystem, path: str, mode: int | None) -> None:
        """Start an empty file.

        Args:
            files: the phone's file system.
            path: target of the upload.
            mode: permissions; None if the client sent an invalid mode.
        """
        self._files = files
        self._path = path
        self._mode = mode
        self._content = bytearray()
        self._error = None if mode is not None else OSError(22, "Invalid argument")

    def take(self, chunk: bytes) -> None:
        """Add a chunk, unless the file cannot be stored anyway."""
        try:
            if self._error is None:
                self._files.reserve(len(chunk))
                self._content += chunk
        except OSError as error:
            self._error = error

    def store(self, mtime: int) -> OSError | None:
        """Store the file; returns the error if that fails."""
        content = bytes(self._content)
        self.release()
        try:
            if self._error is None:
                self._files.make_folders(self._path.rpartition("/")[0] or "/")
                self._files.write(self._path, content, mode=self._mode or 0, mtime=mtime)
        except OSError as error:
            self._error = error
        return self._error

    def release(self) -> None:
        """Release the reserved space."""
        self._files.release(len(self._content))
        self._content.clear()
