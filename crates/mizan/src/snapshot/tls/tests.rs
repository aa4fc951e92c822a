use super::*;

#[test]
fn a_reserved_header_is_known_in_every_spelling() {
    let reserved = [Box::from("x-client-cert-san"), Box::from("x_who")];
    for name in [
        "x-client-cert-san",
        "X-Client-Cert-San",
        "X_CLIENT_CERT_SAN",
        "x-client_Cert-san",
        "x-who",
        "X_Who",
    ] {
        assert!(is_reserved(&reserved, name.as_bytes()), "{name}");
    }
    for name in ["x-client-cert-sans", "x-client-cert", "xwho", ""] {
        assert!(!is_reserved(&reserved, name.as_bytes()), "{name}");
    }
}
