"""HTTP connections to an engine's server, with a limit on the size of responses.

Uses httpx2 rather than OpenAI's client, which is built on it: only a few requests are needed, and
OpenAI's client reads responses of any length into memory and adds 30 MB and 0.7 s of import time.
"""

from collections.abc import Mapping

from agentrl.errors import ConfigError, EndpointUnreachable, EngineError, boundary
from agentrl.text.formatting import quoted, retry_after_s

CONNECT_S = 30.0


class HttpConnection:
    """Sends requests. Callers enforce deadlines, which must cover the whole response."""

    def __init__(
        self,
        url: str,
        in_flight: int,
        *,
        largest: int,
        advice: str,
        headers: Mapping[str, str],
        uses_proxy: bool,
    ) -> None:
        try:
            import httpx2
        except ImportError:
            raise ConfigError(advice) from None
        self.url, self._largest = url.rstrip("/"), largest
        # A compressed response can expand a thousandfold, so the size limit works only without
        # compression.
        plain = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        self._http = httpx2.AsyncClient(
            headers={**headers, **plain},
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=in_flight),
            trust_env=uses_proxy,
        )

    async def send(
        self, method: str, path: str, body: bytes | None = None
    ) -> tuple[int, bytes, float]:
        """Send a request and return the response's status, content and `Retry-After` in seconds.

        Raises:
            EndpointUnreachable: the server cannot be reached, or the connection broke.
            EngineError: the response is too large or compressed.
        """
        import httpx2

        what, content = f"{self.url}{path}", bytearray()
        try:
            with boundary(EngineError, what):
                async with self._http.stream(method, what, content=body) as response:
                    packed = response.headers.get("content-encoding", "identity")
                    if packed != "identity":
                        raise EngineError(f"{what}: the response is compressed ({quoted(packed)})")
                    async for chunk in response.aiter_raw():
                        content += chunk
                        if len(content) > self._largest:
                            raise EngineError(f"{what}: the response exceeds {self._largest} bytes")
        except EngineError as error:
            if isinstance(why := error.__cause__, httpx2.TransportError):
                message = f"{what}: {type(why).__name__}: {why}".removesuffix(": ")
                raise EndpointUnreachable(message) from None
            raise
        wait_s = retry_after_s(response.headers.get("retry-after"))
        return response.status_code, bytes(content), wait_s

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._http.aclose()
