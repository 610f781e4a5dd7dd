"""Which values of an nginx configuration hold where requests are handed on to the service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from service.doctor.nginx_file import Block, NginxFile

_URL = re.compile(r"https?://(unix:[^:\s]+|[^/\s]+)")


@dataclass(frozen=True, slots=True)
class Handover:
    """A block that hands requests on. `where`: as it is written; `scopes`: it and those around it, innermost first.

    `upstream`: the block that its address names; None where it is an address itself. `addresses`: HOST:PORT or
    unix:PATH, as they are written.
    """

    where: str
    scopes: tuple[Block, ...]
    upstream: Block | None
    addresses: tuple[str, ...]

    def value(self, name: str) -> tuple[str, ...] | None:
        """The words of a directive that holds here: of the innermost block that has it. None where none has it."""
        for scope in self.scopes:
            if found := scope.named(name):
                return found[-1].args
        return None

    def values(self, name: str) -> list[tuple[str, ...]]:
        """For directives that may stand several times: all of the innermost block that has one."""
        return next(([each.args for each in scope.named(name)] for scope in self.scopes if scope.named(name)), [])


def handovers(file: NginxFile, port_or_path: str | None) -> tuple[list[Handover], bool]:
    """The blocks whose requests go to the service, and whether the address is what shows it.

    port_or_path: the end of the service's address, "8000" or "/run/jitney.sock"; None where it has none. When no block
    leads there, as in a container where it has another name, all blocks that hand requests on are returned.
    """
    upstreams = {each.args[0]: each for each in _every(file.root, "upstream") if each.args}
    found = [_handover(scopes, block, upstreams) for block, scopes in _passes(file.root, ()) if block.args]
    there = [each for each in found if any(_leads_to(address, port_or_path) for address in each.addresses)]
    return (there, True) if there else (found, False)


def _every(block: Block, name: str) -> Iterator[Block]:
    for each in block.inside:
        if each.name == name:
            yield each
        yield from _every(each, name)


def _passes(block: Block, around: tuple[Block, ...]) -> Iterator[tuple[Block, tuple[Block, ...]]]:
    """Each proxy_pass with the blocks that it lies in, innermost first."""
    scopes = (block, *around)
    for each in block.inside:
        if each.name == "proxy_pass":
            yield each, scopes
        yield from _passes(each, scopes)


def _handover(scopes: tuple[Block, ...], proxy_pass: Block, upstreams: dict[str, Block]) -> Handover:
    match = _URL.match(proxy_pass.args[0])
    target = match[1] if match else proxy_pass.args[0]
    upstream = upstreams.get(target)
    addresses = (target,) if upstream is None else tuple(each.args[0] for each in upstream.named("server") if each.args)
    where = " ".join([scopes[0].name, *scopes[0].args]) or "proxy_pass"
    return Handover(where, scopes, upstream, addresses)


def _leads_to(address: str, port_or_path: str | None) -> bool:
    if port_or_path is None:
        return False
    if port_or_path.startswith("/"):
        return address == f"unix:{port_or_path}"
    host, _, port = address.rpartition(":")
    return port == port_or_path and not host.startswith("unix")
