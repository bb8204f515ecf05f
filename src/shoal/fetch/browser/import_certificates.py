"""A program of its own: puts certificates into the NSS database of a folder as ones that sites may be vouched for by.

Given the folder and a file of certificates (PEM). It asks the library that Chromium itself reads the database with, so
that no further program has to be installed; in a process of its own, for the library keeps its state in it.
"""

from __future__ import annotations

import ctypes
import re
import ssl
import sys
from pathlib import Path

TRUSTED_AUTHORITY = 1 << 3 | 1 << 4  # CERTDB_VALID_CA, CERTDB_TRUSTED_CA
_certificates = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL).findall


class _Trust(ctypes.Structure):
    _fields_ = (("ssl", ctypes.c_uint), ("email", ctypes.c_uint), ("code", ctypes.c_uint))


def import_certificates(folder: str, file: str) -> None:
    """Raises OSError and ValueError with what is wrong."""
    found = [ssl.PEM_cert_to_DER_cert(text) for text in _certificates(Path(file).read_text("utf-8", "replace"))]
    if not found:
        raise ValueError(f"{file} holds no certificate")
    nss, decoder = ctypes.CDLL("libnss3.so"), ctypes.CDLL("libsmime3.so")
    pointer = ctypes.c_void_p
    nss.PK11_GetInternalKeySlot.restype = nss.CERT_GetDefaultCertDB.restype = pointer
    nss.PK11_NeedUserInit.argtypes = [pointer]
    nss.PK11_InitPin.argtypes = [pointer, ctypes.c_char_p, ctypes.c_char_p]
    nss.PK11_ImportCert.argtypes = [pointer, pointer, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int]
    nss.CERT_ChangeCertTrust.argtypes = [pointer, pointer, pointer]
    nss.PK11_FreeSlot.argtypes = nss.CERT_DestroyCertificate.argtypes = [pointer]
    decoder.CERT_DecodeCertFromPackage.argtypes = [ctypes.c_char_p, ctypes.c_int]
    decoder.CERT_DecodeCertFromPackage.restype = pointer
    _check(nss.NSS_InitReadWrite(f"sql:{folder}".encode()), f"the database in {folder} cannot be opened")
    slot, trust = nss.PK11_GetInternalKeySlot(), _Trust(TRUSTED_AUTHORITY, 0, 0)
    if nss.PK11_NeedUserInit(slot):
        _check(nss.PK11_InitPin(slot, None, b""), f"the database in {folder} cannot be made")
    for number, der in enumerate(found, 1):
        certificate = decoder.CERT_DecodeCertFromPackage(der, len(der))
        if not certificate:
            raise ValueError(f"certificate {number} of {file} cannot be read")
        place = f"certificate {number} of {file} cannot be added"
        _check(nss.PK11_ImportCert(slot, certificate, 0, f"shoal-{number}".encode(), 0), place)
        _check(nss.CERT_ChangeCertTrust(nss.CERT_GetDefaultCertDB(), certificate, ctypes.byref(trust)), place)
        nss.CERT_DestroyCertificate(certificate)
    nss.PK11_FreeSlot(slot)
    _check(nss.NSS_Shutdown(), f"the database in {folder} cannot be written")


def _check(status: int, words: str) -> None:
    if status:
        raise ValueError(words)


if __name__ == "__main__":
    try:
        import_certificates(sys.argv[1], sys.argv[2])
    except (OSError, ValueError) as error:
        sys.exit(str(error))
