"""What TLS needs at a bench: the proxies' certificate, and one suite and one group for all clients."""
import os
import subprocess

from . import peers, procfs

# For the load generators that take their TLS from a file; tools/tls.h says the same for those of ours.
CLIENT = """openssl_conf = init
[init]
ssl_conf = modules
[modules]
system_default = client
[client]
MinProtocol = TLSv1.3
Ciphersuites = TLS_AES_128_GCM_SHA256
Groups = X25519
"""


def make_files():
    """A P-256 certificate that signs itself, made once, and the clients' settings."""
    cert, key, pem, client = (peers.tls_file(name) for name in ("cert", "key", "pem", "client"))
    os.makedirs(os.path.dirname(cert), exist_ok=True)
    with open(client, "w") as file:
        file.write(CLIENT)
    if not os.path.exists(pem):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
                       check=True, stderr=subprocess.DEVNULL)
        with open(pem, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(procfs.read(cert) + procfs.read(key))
