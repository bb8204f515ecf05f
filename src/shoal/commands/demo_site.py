"""The demo site in a process of its own, for commands that crawl it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from shoal.errors import ActionRequired


@contextlib.contextmanager
def demo_site(products: int, slow: float) -> Iterator[str]:
    """The site in a process of its own, which ends with this one whatever happens."""
    command = [sys.executable, "-P", "-m", "shoal.demo.server", "--port", "0", "--until-stdin-closes"]
    command += ["--products", str(products), "--delay", str(slow)]
    site = subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert site.stdout is not None
        url = site.stdout.readline().strip()
        if not url.startswith("http://"):
            raise ActionRequired("the demo site did not start", hint="python -m shoal.demo.server says why")
        yield url
    finally:
        assert site.stdin is not None and site.stdout is not None
        site.stdin.close()
        site.wait(timeout=10)
        site.stdout.close()
