"""Tests of exits: one request to a URL by each proxy of an exit, or by a tor that is started for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec
from msgspec.structs import replace

from shoal.config.load import Settings
from shoal.core.page import Request
from shoal.core.url import host_of
from shoal.errors import FetchFailed, FetchRefused, ProxyFailed
from shoal.fetch.base import Fetcher
from shoal.fetch.exits.exit_set import ExitSet
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.proxy import proxy_address, validate_proxy
from shoal.fetch.tor.status import Circuit
from shoal.launch.fetchers import http_fetcher

AT_ONCE = 8
FIRST_BYTES = 4096
TOR = "tor"


class ProxyTrial(msgspec.Struct, frozen=True):
    """What one proxy did; shown without its login."""

    exit: str
    proxy: str
    works: bool  # the site answered through it, whatever it said
    seconds: float
    status: int = 0
    error: str = ""
    bootstrap_seconds: float = 0.0  # of a tor
    circuit: tuple[str, ...] = ()  # the relays that it took, the exit last


async def try_proxies(settings: Settings, exit: ExitOptions, url: str) -> AsyncIterator[ProxyTrial]:
    """As they come, several at once."""
    fetcher = http_fetcher(settings)
    places = asyncio.Semaphore(AT_ONCE)

    async def one(proxy: str) -> ProxyTrial:
        async with places:
            return await _try(fetcher, settings, exit.name, proxy, url)

    trials = [asyncio.ensure_future(one(proxy)) for proxy in exit.proxies or ("",)]
    try:
        for trial in asyncio.as_completed(trials):
            yield await trial
    finally:
        for task in trials:
            task.cancel()
        await asyncio.gather(*trials, return_exceptions=True)
        await fetcher.close()


async def try_tor(settings: Settings, exit: ExitOptions, url: str) -> AsyncIterator[ProxyTrial]:
    """One trial, by a tor of this process."""
    fetcher, exits, began = http_fetcher(settings), ExitSet([exit]), time.monotonic()
    try:
        try:
            proxy = await exits.find(exit.name).choose("", host_of(url), ())
        except FetchFailed as error:
            yield ProxyTrial(exit.name, TOR, False, time.monotonic() - began, error=str(error))
            return
        bootstrapped = time.monotonic() - began
        trial = await _try(fetcher, settings, exit.name, proxy.url, url)
        circuits = await _circuits(exits, exit.name)
        taken = next((one.relays for one in circuits if one.user == proxy_address(proxy.url).user), ())
        yield replace(trial, proxy=TOR, bootstrap_seconds=bootstrapped, circuit=taken)
    finally:
        await fetcher.close()
        await exits.close()


async def _circuits(exits: ExitSet, name: str) -> list[Circuit]:
    tor = exits.find(name).tor
    try:
        return await tor.circuits() if tor is not None else []
    except FetchFailed:
        return []


async def _try(fetcher: Fetcher, settings: Settings, exit: str, proxy: str, url: str) -> ProxyTrial:
    shown, began = validate_proxy(proxy) if proxy else "direct", time.monotonic()
    try:
        response = await fetcher.fetch(Request(url, timeout=settings.timeout, proxy=proxy, first=FIRST_BYTES))
    except (FetchFailed, FetchRefused) as error:
        whose = "the proxy" if isinstance(error, ProxyFailed) else "the site"
        return ProxyTrial(exit, shown, False, time.monotonic() - began, error=f"{whose}: {error.cause}: {error}")
    return ProxyTrial(exit, shown, True, time.monotonic() - began, response.status)
