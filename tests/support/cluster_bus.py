"""The bus of a private cluster, relayed, so that a node can be cut off from the others.

Every node announces a port of the relay, and dials its peers there; it names itself in the first
message. Clients reach the node all the same.
"""

import asyncio
import threading
from collections.abc import Sequence

from tests.support.servers import free_port

# Where a message of the bus has the 40 digits of its sender's id.
SENDER = slice(40, 80)


class ClusterBus:
    """Relays in a thread with an event loop of its own, from start() to stop()."""

    def __init__(self, nodes: int) -> None:
        self.announced = [free_port() for _ in range(nodes)]
        self._cut: int | None = None
        self._lost: list[asyncio.StreamWriter] = []
        self._ids: list[bytes] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._thread: threading.Thread | None = None

    def start(self, ids: Sequence[str], own: Sequence[int]) -> None:
        """By node: its id, and its own port of the bus."""
        self._ids = [each.encode() for each in ids]
        begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(own, begun)))
        self._thread.start()
        assert begun.wait(10)

    def stop(self) -> None:
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    async def _run(self, own: Sequence[int], begun: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        servers = [await self._listen(number, port) for number, port in enumerate(own)]
        begun.set()
        await self._stopping.wait()
        for server in servers:
            server.close()

    def cut_off(self, number: int) -> None:
        """What the node sends to others, and they to it, gets lost."""
        self._cut = number

    def let_back(self) -> None:
        """The connections that lost something are closed, and the nodes dial again."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._let_back)

    def _let_back(self) -> None:
        self._cut = None
        while self._lost:
            self._lost.pop().close()

    async def _listen(self, number: int, port: int) -> asyncio.Server:
        async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = None
            try:
                first = await reader.readexactly(SENDER.stop)
                ends = {number, self._ids.index(first[SENDER])}
                peer_reader, peer = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(
                    self._pump(reader, peer, ends, first), self._pump(peer_reader, writer, ends)
                )
            except (OSError, EOFError):
                pass
            finally:
                for each in (writer, peer):
                    if each is not None:
                        each.close()

        return await asyncio.start_server(link, "127.0.0.1", self.announced[number])

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: set[int],
        data: bytes = b"",
    ) -> None:
        loses = False
        while True:
            loses = loses or self._cut in ends
            if loses:
                if writer not in self._lost:
                    self._lost.append(writer)
            elif data:
                writer.write(data)
                await writer.drain()
            data = await reader.read(65536)
            if not data:
                raise EOFError
