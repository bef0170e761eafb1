//! Answers that are no TLS, and files that are missing.

use super::*;
use std::net::TcpListener;
use std::time::{Duration, Instant};

#[test]
fn files_that_are_not_there_are_named() {
    for own in [None, Some((Path::new("/nowhere/c.pem"), Path::new("/nowhere/c.key")))] {
        let error = Context::client(Path::new("/nowhere/ca.pem"), own).unwrap_err().to_string();
        assert!(error.contains("/nowhere/ca.pem") || error.contains("no OpenSSL"), "{error}");
    }
}

/// An authority whose key does not exist any more.
const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBfTCCASOgAwIBAgIUaLwlEZSgFhUTwLImYtUEO4xa3tAwCgYIKoZIzj0EAwIw
GzEZMBcGA1UEAwwQSHlSb2FkcyAyMWJiMWE5ODAeFw0yNjExMjUxMTA1MjBaFw0z
NjExMjMxMTA1MjBaMBsxGTAXBgNVBAMMEEh5Um9hZHMgMjFiYjFhOTgwWTATBgcq
hkjOPQIBBggqhkjOPQMBBwNCAARm6HAB+ySCI70s4gGlCC+r5YYIH1DoVOjbbD7U
YRjVnvrcLeVroccWcktOA2kOSMpN88G5Fm69AvQBCMk40IUIo0UwQzAdBgNVHQ4E
FgQUQom17MmDOwqHI482YDtwUqcsdKIwEgYDVR0TAQH/BAgwBgEB/wIBADAOBgNV
HQ8BAf8EBAMCAQYwCgYIKoZIzj0EAwIDSAAwRQIgG5QT22osga6S/BH9mRxsc4nB
Sa4t5tg/xYUQJ0jxZmYCIQCrqTfBZB+Y9G9YUrQYbfwI8gSRRybweavmuSJpaMhj
AQ==
-----END CERTIFICATE-----
";

fn a_context() -> Option<Context> {
    let file = std::env::temp_dir().join(format!("hyroads-tls-{}-{:?}.pem", std::process::id(), Instant::now()));
    std::fs::write(&file, CA).unwrap();
    let made = Context::client(&file, None);
    std::fs::remove_file(&file).unwrap();
    made.ok()
}

fn read_to_the_end(stream: &mut TlsStream) -> io::Error {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        match stream.read(&mut [0; 64]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return error,
            Ok(read) => panic!("{read} bytes without a handshake"),
        }
    }
}

#[test]
fn answer_that_is_no_tls_is_an_error_and_the_session_stays_failed() {
    let context = match a_context() {
        Some(context) => context,
        None => return,
    };
    let answers: [&[u8]; 4] = [b"", b"HTTP/1.1 400 no\r\n\r\n", &[0x16, 3, 3, 0xff, 0xff, 0, 0], &[0; 300]];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let mut stream = context.over(tcp, "localhost").unwrap();
        assert_eq!(stream.write(b"hello").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(stream.waits_to_read());
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(answer).unwrap();
        drop(peer);
        let error = read_to_the_end(&mut stream);
        assert_ne!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(stream.read(&mut [0; 4]).is_err() && stream.write(b"x").is_err());
    }
}
