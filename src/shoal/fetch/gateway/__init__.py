"""The gateway: a proxy on this machine's loopback through which a browser's traffic goes, within our limits."""
