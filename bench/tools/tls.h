/* TLS 1.3 as all clients of the bench speak it: the same suite and group, whatever the proxy would rather have. */
#ifndef BENCH_TLS_H
#define BENCH_TLS_H
#include <openssl/err.h>
#include <openssl/ssl.h>

static inline SSL_CTX *tls_client(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context || !SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION)
        || !SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") || !SSL_CTX_set1_groups_list(context, "X25519")) {
        ERR_print_errors_fp(stderr);
        exit(1);
    }
    /* Ten thousand idle connections stand in one process. */
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    return context;
}

/* A client on a connected socket, before its handshake. Whose certificate it is, the bench has checked before. */
static inline SSL *tls_on(SSL_CTX *context, int fd)
{
    SSL *ssl = SSL_new(context);
    if (!ssl || !SSL_set_fd(ssl, fd) || !SSL_set_tlsext_host_name(ssl, "localhost"))
        fail("TLS set-up");
    SSL_set_connect_state(ssl);
    return ssl;
}
#endif
