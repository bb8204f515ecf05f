"""shoal as on a system that does not say whose process is at the other end of a connection."""

from __future__ import annotations

import sys

from shoal.cli.main import main
from shoal.web.auth import peer_user

if __name__ == "__main__":
    peer_user.is_supported = False
    sys.exit(main())
