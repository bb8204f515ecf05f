"""What kind of file system a folder is on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NETWORK_FILE_SYSTEMS = frozenset([
    "nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afpfs", "webdav", "davfs", "9p", "fuse.sshfs",
    "ceph", "glusterfs", "lustre", "afs", "ncpfs",
])  # fmt: skip


def file_system(folder: Path) -> str:
    """The type of the file system a folder is on, '' if it cannot be known."""
    try:
        if sys.platform == "darwin":
            return _mounted(
                subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=False).stdout,
                str(folder.resolve()),
                mac=True,
            )
        return _mounted(Path("/proc/self/mounts").read_text("utf-8", "replace"), str(folder.resolve()), mac=False)
    except OSError:
        return ""


def _mounted(table: str, folder: str, *, mac: bool) -> str:
    best, kind = "", ""
    for line in table.splitlines():
        if mac:  # "//host/share on /Volumes/share (smbfs, …)"
            _, _, rest = line.partition(" on ")
            point, _, options = rest.rpartition(" (")
            this = options.split(",")[0].rstrip(")")
        else:
            fields = line.split()
            if len(fields) < 3:
                continue
            point, this = fields[1].replace("\\040", " "), fields[2]
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, this
    return kind
