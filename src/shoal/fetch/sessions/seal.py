"""SessionSeal: who is logged in, encrypted for the queue with a key from the settings.

AES-256-GCM by the package cryptography; the name of the session is authenticated with it, so that what was sealed for
one session is not taken for another's. The key is derived by scrypt: whoever reads the queue can try keys in peace.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from functools import lru_cache

import msgspec

from shoal.errors import ActionRequired, UsageError
from shoal.fetch.sessions.identity import IdentityValues
from shoal.version import install_hint

_PREFIX = "v1."
_NONCE = 12  # bytes
KEY_HINT = "set the same SHOAL_SESSION_KEY on all machines; a new one: openssl rand -hex 32"


class SealBroken(ActionRequired):
    """What is kept was sealed with another key, or is damaged."""


class SessionSeal:
    def __init__(self, secret: str) -> None:
        """Raises UsageError where sessions cannot be kept."""
        if not secret:
            raise UsageError("sessions are kept encrypted, and there is no key for them", hint=KEY_HINT)
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise UsageError("sessions need the package cryptography", hint=install_hint("sessions")) from error
        key = _derived(secret)
        self._cipher = AESGCM(key)
        self.fingerprint = hashlib.sha256(b"fingerprint\0" + key).hexdigest()[:12]

    def seal(self, name: str, values: IdentityValues) -> str:
        nonce = os.urandom(_NONCE)
        data = nonce + self._cipher.encrypt(nonce, msgspec.json.encode(values), _bound_to(name))
        return _PREFIX + base64.b64encode(data).decode()

    def open(self, name: str, text: str) -> IdentityValues:
        """Raises SealBroken."""
        from cryptography.exceptions import InvalidTag

        try:
            if not text.startswith(_PREFIX):
                raise ValueError("another format")
            data = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
            plain = self._cipher.decrypt(data[:_NONCE], data[_NONCE:], _bound_to(name))
            return _decode(plain)
        except (InvalidTag, ValueError, binascii.Error, msgspec.MsgspecError) as error:
            raise SealBroken(
                f"the session {name} is sealed with another key than this machine's, or is damaged", hint=KEY_HINT
            ) from error


_decode = msgspec.json.Decoder(IdentityValues).decode


def _bound_to(name: str) -> bytes:
    return b"shoal session\0" + name.encode()


@lru_cache(maxsize=4)
def _derived(secret: str) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=b"shoal sessions v1", n=2**14, r=8, p=1, dklen=32)
