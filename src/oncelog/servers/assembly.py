"""All faces of one server over one engine: started in the order of the list, stopped together. A server process has
one, and so has every test that runs a server in its own process.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from oncelog.errors import OncelogError
from oncelog.servers.face import Face, FaceContext
from oncelog.servers.face_settings import Address, FaceSettings
from oncelog.servers.faces import FACES, resolved
from oncelog.servers.listener import tls_context
from oncelog.servers.room import RoomWatch

ROOM_LOOK_S: Final = 1.0
"""How often somebody looks whether writes are refused for want of room."""


class CannotListen(OncelogError):
    """A face cannot be started at its address: says which face, where, and what the system said."""

    def __init__(self, face: str, settings: FaceSettings, cause: OSError) -> None:
        self.face = face
        self.settings = settings
        self.cause = cause
        super().__init__(f"{face} cannot listen on {settings.address}: {cause}")


class Assembly:
    """The faces of one server."""

    def __init__(self, context: FaceContext, settings: Mapping[str, FaceSettings]) -> None:
        self._context = context
        self._settings = settings
        self.addresses: dict[str, Address] = {}
        """Where each face listens, by its name, once it does."""
        self.room = RoomWatch(context.engine, context.say)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def faces(self) -> list[Face]:
        """Those that are enabled, in the order in which they start."""
        return self._context.faces

    async def start(self) -> None:
        """Start every face that is enabled. Raises CannotListen; then none of them listens."""
        for kind in FACES:
            settings = self._settings[kind.name]
            if settings.enabled:
                self.faces.append(resolved(kind.server)(self._context, settings))
        for face in self.faces:
            try:
                self.addresses[face.name] = await face.start()
            except OSError as error:
                await self.stop()
                raise CannotListen(face.name, self._settings[face.name], error) from error
        self._look()

    async def stop(self) -> None:
        """Take no more, answer what was accepted, let clients go. All faces at once: none waits for another."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(face.stop() for face in self.faces))
        self._context.back_pressure.close()

    def ready_words(self) -> str:
        """The addresses of all faces, as the ready line names them."""
        return " ".join(f"{name}={address}" for name, address in self.addresses.items())

    def _look(self) -> None:
        self._timer = self._context.loop.call_later(ROOM_LOOK_S, self._look)
        self.room.look()


async def try_addresses(settings: Mapping[str, FaceSettings], loop: asyncio.AbstractEventLoop) -> None:
    """An address that is taken, or a certificate that cannot be used, is reported before there is a log: a new one is
    256 MB on disk that nobody asked for. Raises CannotListen."""
    for name, chosen in settings.items():
        if not chosen.enabled:
            continue
        try:
            tls_context(chosen)
            host, port = chosen.listen
            listener = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
        except OSError as error:
            raise CannotListen(name, chosen, error) from error
        listener.close()
        await listener.wait_closed()


def with_connections(settings: Mapping[str, FaceSettings], allowed: int) -> dict[str, FaceSettings]:
    """The same settings for so many connections of all faces together. If that is fewer than they want, each gets its
    share: no face can take the descriptors of another."""
    wanted = connections_wanted(settings)
    return {
        name: chosen
        if wanted <= allowed
        else msgspec.structs.replace(chosen, connections_max=max(1, chosen.connections_max * allowed // wanted))
        for name, chosen in settings.items()
    }


def connections_wanted(settings: Mapping[str, FaceSettings]) -> int:
    """Connections of all faces together that the settings ask for."""
    return sum(chosen.connections_max for chosen in settings.values() if chosen.enabled)


def listener_count(settings: Mapping[str, FaceSettings]) -> int:
    """Faces that are enabled: each has a listener with a backlog of its own."""
    return sum(chosen.enabled for chosen in settings.values())
