//! TLS over a non-blocking TCP connection, by the OpenSSL of the system.
//!
//! The library is loaded when the options name an authority. So the program needs it neither where it is built nor
//! where it runs without TLS, and the distribution's updates of it are enough. A static program can't load a library:
//! it has no TLS, and an option that needs TLS ends it.

use super::{context, invalid};
use libc::{c_char, c_int, c_long, c_ulong, c_void};
use std::ffi::{CStr, CString};
use std::fmt;
use std::io::{self, Read, Write};
use std::mem;
use std::net::{IpAddr, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::{AsRawFd, RawFd};
use std::path::Path;
use std::ptr;
use std::rc::Rc;

/// The interfaces of both are the same as far as they are used here.
const LIBRARIES: [&str; 2] = ["libssl.so.3", "libssl.so.1.1"];
const STATIC: &str = "--ca: this program is static and has no TLS: run one that is dynamically linked, or dial the \
    controller through a TLS client such as stunnel";
// Of openssl/ssl.h and openssl/x509_vfy.h; they have never changed.
const VERIFY_PEER: c_int = 1;
const CTRL_MODE: c_int = 33;
const MODE_PARTIAL_WRITE_MOVING_BUFFER: c_long = 3;
const CTRL_SET_SERVER_NAME: c_int = 55;
const CTRL_SET_LEAST_VERSION: c_int = 123;
const TLS_1_2: c_long = 0x0303;
const FILE_PEM: c_int = 1;
const ERROR_SSL: c_int = 1;
const ERROR_WANT_READ: c_int = 2;
const ERROR_WANT_WRITE: c_int = 3;
const ERROR_SYSCALL: c_int = 5;
const ERROR_ZERO_RETURN: c_int = 6;
const VERIFIED: c_long = 0;

type Object = *mut c_void;
type Text = *const c_char;
type PasswordCallback = extern "C" fn(*mut c_char, c_int, c_int, Object) -> c_int;

/// Declares the functions that are used, and how each is found by its name.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_snake_case)]
        struct Functions { $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Functions {
            /// # Safety
            ///
            /// `library` is a handle of OpenSSL's libssl, which is never closed.
            unsafe fn of(library: Object) -> io::Result<Functions> {
                // SAFETY: each symbol of OpenSSL has the type that its header says, which is the one declared here.
                Ok(Functions { $($name: unsafe {
                    mem::transmute::<Object, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                        symbol(library, stringify!($name))?,
                    )
                },)* })
            }
        }
    };
}

functions! {
    TLS_client_method: fn() -> Object;
    SSL_CTX_new: fn(Object) -> Object;
    SSL_CTX_free: fn(Object);
    SSL_CTX_ctrl: fn(Object, c_int, c_long, Object) -> c_long;
    SSL_CTX_set_verify: fn(Object, c_int, Object);
    SSL_CTX_set_default_passwd_cb: fn(Object, PasswordCallback);
    SSL_CTX_load_verify_locations: fn(Object, Text, Text) -> c_int;
    SSL_CTX_use_certificate_chain_file: fn(Object, Text) -> c_int;
    SSL_CTX_use_PrivateKey_file: fn(Object, Text, c_int) -> c_int;
    SSL_CTX_check_private_key: fn(Object) -> c_int;
    SSL_new: fn(Object) -> Object;
    SSL_free: fn(Object);
    SSL_ctrl: fn(Object, c_int, c_long, *mut c_char) -> c_long;
    SSL_get0_param: fn(Object) -> Object;
    SSL_set_fd: fn(Object, c_int) -> c_int;
    SSL_set_connect_state: fn(Object);
    SSL_read: fn(Object, *mut u8, c_int) -> c_int;
    SSL_write: fn(Object, *const u8, c_int) -> c_int;
    SSL_get_error: fn(Object, c_int) -> c_int;
    SSL_get_verify_result: fn(Object) -> c_long;
    X509_VERIFY_PARAM_set1_host: fn(Object, Text, usize) -> c_int;
    X509_VERIFY_PARAM_set1_ip_asc: fn(Object, Text) -> c_int;
    X509_verify_cert_error_string: fn(c_long) -> Text;
    ERR_get_error: fn() -> c_ulong;
    ERR_clear_error: fn();
    ERR_error_string_n: fn(c_ulong, *mut c_char, usize);
}

/// # Safety
///
/// `library` is a handle that `dlopen` gave.
unsafe fn symbol(library: Object, name: &str) -> io::Result<Object> {
    let text = CString::new(name)?;
    // SAFETY: the handle is valid by the caller's promise, the name ends with a zero.
    let found = unsafe { libc::dlsym(library, text.as_ptr()) };
    if found.is_null() {
        return Err(invalid(format!("TLS: the OpenSSL of this system has no {name}")));
    }
    Ok(found)
}

fn load() -> io::Result<Functions> {
    if cfg!(target_feature = "crt-static") {
        return Err(io::Error::new(io::ErrorKind::Unsupported, STATIC));
    }
    for name in LIBRARIES {
        let text = CString::new(name)?;
        // SAFETY: the name ends with a zero; what the library does when it is loaded is the system's.
        let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if !library.is_null() {
            // SAFETY: a handle of libssl, by its name, and nothing closes it.
            return unsafe { Functions::of(library) };
        }
    }
    let what = format!("TLS: no OpenSSL on this system: expected {}", LIBRARIES.join(" or "));
    Err(io::Error::new(io::ErrorKind::Unsupported, what))
}

/// A key with a password would else be asked for at a terminal.
extern "C" fn no_password(_: *mut c_char, _: c_int, _: c_int, _: Object) -> c_int {
    0
}

/// How we trust others and show who we are. Copies share it.
#[derive(Clone)]
pub struct Context {
    inner: Rc<Inner>,
}

struct Inner {
    functions: Functions,
    context: Object,
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Context")
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the context is ours alone, and every session keeps us alive.
        unsafe { (self.functions.SSL_CTX_free)(self.context) }
    }
}

impl Context {
    /// Trusts servers with a certificate of `ca` (PEM), and shows the certificate of `own` (certificate, key).
    pub fn client(ca: &Path, own: Option<(&Path, &Path)>) -> io::Result<Context> {
        let functions = load()?;
        // SAFETY: no argument; the method lives as long as the library.
        let method = unsafe { (functions.TLS_client_method)() };
        // SAFETY: a method of the same library.
        let made = unsafe { (functions.SSL_CTX_new)(method) };
        if made.is_null() {
            return Err(functions.error("TLS"));
        }
        let inner = Inner { functions, context: made };
        let f = &inner.functions;
        // SAFETY: the context was just made, and arguments are those that these controls are documented with.
        unsafe {
            (f.SSL_CTX_ctrl)(made, CTRL_SET_LEAST_VERSION, TLS_1_2, ptr::null_mut());
            (f.SSL_CTX_ctrl)(made, CTRL_MODE, MODE_PARTIAL_WRITE_MOVING_BUFFER, ptr::null_mut());
            (f.SSL_CTX_set_verify)(made, VERIFY_PEER, ptr::null_mut());
            (f.SSL_CTX_set_default_passwd_cb)(made, no_password);
        }
        let text = path_text(ca)?;
        // SAFETY: the context is valid, the name ends with a zero, and no folder is given.
        f.succeeded(ca, unsafe { (f.SSL_CTX_load_verify_locations)(made, text.as_ptr(), ptr::null()) })?;
        if let Some((certificate, key)) = own {
            let text = path_text(certificate)?;
            // SAFETY: as above.
            f.succeeded(certificate, unsafe { (f.SSL_CTX_use_certificate_chain_file)(made, text.as_ptr()) })?;
            let text = path_text(key)?;
            // SAFETY: as above.
            f.succeeded(key, unsafe { (f.SSL_CTX_use_PrivateKey_file)(made, text.as_ptr(), FILE_PEM) })?;
            // SAFETY: the context is valid.
            f.succeeded(key, unsafe { (f.SSL_CTX_check_private_key)(made) })?;
        }
        Ok(Context { inner: Rc::new(inner) })
    }

    /// TLS over a connection, which may still be being made; `name` is the server's, which its certificate must have.
    pub fn over(&self, tcp: TcpStream, name: &str) -> io::Result<TlsStream> {
        let f = &self.inner.functions;
        // SAFETY: the context is valid.
        let session = unsafe { (f.SSL_new)(self.inner.context) };
        if session.is_null() {
            return Err(f.error("TLS"));
        }
        let stream = TlsStream { session, context: self.clone(), tcp, waits_to_read: false, failed: false };
        let text = CString::new(name)?;
        // SAFETY: the session is valid, and its parameters live as long as it does.
        let parameters = unsafe { (f.SSL_get0_param)(session) };
        let set = if name.parse::<IpAddr>().is_ok() {
            // SAFETY: valid parameters, and a text that ends with a zero.
            unsafe { (f.X509_VERIFY_PARAM_set1_ip_asc)(parameters, text.as_ptr()) }
        } else {
            // SAFETY: as above; the control copies the name (openssl/tls1.h, type 0: a host name).
            unsafe {
                (f.SSL_ctrl)(session, CTRL_SET_SERVER_NAME, 0, text.as_ptr() as *mut c_char);
                (f.X509_VERIFY_PARAM_set1_host)(parameters, text.as_ptr(), 0)
            }
        };
        f.succeeded(Path::new(name), set)?;
        // SAFETY: the session is valid; the descriptor stays open as long as the stream, which frees the session first.
        f.succeeded(Path::new(name), unsafe { (f.SSL_set_fd)(session, stream.tcp.as_raw_fd()) })?;
        // SAFETY: the session is valid.
        unsafe { (f.SSL_set_connect_state)(session) };
        Ok(stream)
    }
}

impl Functions {
    fn succeeded(&self, what: &Path, result: c_int) -> io::Result<()> {
        if result == 1 {
            Ok(())
        } else {
            Err(self.error(&what.display().to_string()))
        }
    }

    /// The first error that the library has noted, and no other any more.
    fn error(&self, what: &str) -> io::Error {
        let mut text = [0 as c_char; 256];
        // SAFETY: the buffer has the size that is told, and is ended with a zero within it.
        let said = unsafe {
            let code = (self.ERR_get_error)();
            (self.ERR_error_string_n)(code, text.as_mut_ptr(), text.len());
            (self.ERR_clear_error)();
            CStr::from_ptr(text.as_ptr())
        };
        invalid(format!("{what}: {}", said.to_string_lossy()))
    }
}

fn path_text(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// The client's end of TLS. The handshake is made by the first reads and writes.
pub struct TlsStream {
    session: Object,
    context: Context,
    tcp: TcpStream,
    waits_to_read: bool,
    failed: bool,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tcp.fmt(formatter)
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        // SAFETY: the session is ours alone; its descriptor is still open.
        unsafe { (self.context.inner.functions.SSL_free)(self.session) }
    }
}

impl TlsStream {
    /// The connection below.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Whether the last write waits for the other side to say something, and not until more can be sent.
    pub fn waits_to_read(&self) -> bool {
        self.waits_to_read
    }

    /// What a result of SSL_read or SSL_write that is no length stands for. After an error the session is not used.
    fn outcome(&mut self, result: c_int, is_write: bool) -> io::Result<usize> {
        let system = io::Error::last_os_error();
        let f = &self.context.inner.functions;
        // SAFETY: the session is valid, and this thread has called nothing else of the library since.
        let kind = unsafe { (f.SSL_get_error)(self.session, result) };
        if kind == ERROR_WANT_READ || kind == ERROR_WANT_WRITE {
            self.waits_to_read = is_write && kind == ERROR_WANT_READ;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if kind == ERROR_ZERO_RETURN {
            return Ok(0);
        }
        self.failed = true;
        // SAFETY: the session is valid.
        let verified = unsafe { (f.SSL_get_verify_result)(self.session) };
        if kind == ERROR_SSL && verified != VERIFIED {
            // SAFETY: the text is the library's, ends with a zero, and is never freed.
            let why = unsafe { CStr::from_ptr((f.X509_verify_cert_error_string)(verified)) };
            // SAFETY: no argument.
            unsafe { (f.ERR_clear_error)() };
            return Err(invalid(format!("TLS: the controller's certificate: {}", why.to_string_lossy())));
        }
        if kind == ERROR_SYSCALL {
            // SAFETY: no argument.
            unsafe { (f.ERR_clear_error)() };
            return match system.raw_os_error() {
                Some(0) | None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "TLS: cut by the other side")),
                Some(_) => Err(context(system, "TLS")),
            };
        }
        Err(f.error("TLS"))
    }

    fn check_usable(&self) -> io::Result<()> {
        if self.failed {
            return Err(invalid("TLS: the session has failed before"));
        }
        // SAFETY: no argument.
        unsafe { (self.context.inner.functions.ERR_clear_error)() };
        Ok(())
    }
}

fn length(size: usize) -> c_int {
    size.min(c_int::MAX as usize) as c_int
}

impl Read for TlsStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.check_usable()?;
        let f = &self.context.inner.functions;
        // SAFETY: the session is valid, and no more is written than the length that is told.
        let result = unsafe { (f.SSL_read)(self.session, out.as_mut_ptr(), length(out.len())) };
        if result > 0 {
            return Ok(result as usize);
        }
        self.outcome(result, false)
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_usable()?;
        self.waits_to_read = false;
        if bytes.is_empty() {
            return Ok(0);
        }
        let f = &self.context.inner.functions;
        // SAFETY: the session is valid, and no more is read than the length that is told.
        let result = unsafe { (f.SSL_write)(self.session, bytes.as_ptr(), length(bytes.len())) };
        if result > 0 {
            return Ok(result as usize);
        }
        match self.outcome(result, true) {
            Ok(_) => Err(io::ErrorKind::BrokenPipe.into()),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for TlsStream {
    fn as_raw_fd(&self) -> RawFd {
        self.tcp.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
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

    /// An authority that nobody has the key of.
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
                Ok(read) => panic!("{read} bytes of nobody"),
            }
        }
    }

    #[test]
    fn what_is_no_tls_is_an_error_and_the_session_stays_one() {
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
}
