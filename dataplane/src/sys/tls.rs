//! TLS over a non-blocking TCP connection, by OpenSSL.

use super::openssl::{self, Functions, Object};
use super::{context, invalid};
use libc::{c_char, c_int, c_long};
use std::ffi::{CStr, CString};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::{AsRawFd, RawFd};
use std::path::Path;
use std::ptr;
use std::rc::Rc;

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
const ERROR_APPLICATION_VERIFICATION: c_int = 50;
// Of openssl/obj_mac.h and openssl/x509v3.h.
const NID_SUBJECT_ALT_NAME: c_int = 85;
const NAME_IS_URI: c_int = 6;
/// The URI of the role that certificates of controllers have (`ROLE_URI` of controller/core/identity.py).
const CONTROLLER_URI: &[u8] = b"hyroads:role:controller";
const NO_ROLE: &str = "it does not have the role controller: see hyroads identity";

/// Without this callback OpenSSL would read the password of a key from a terminal.
extern "C" fn no_password(_: *mut c_char, _: c_int, _: c_int, _: Object) -> c_int {
    0
}

/// Verifies the certificate that a server shows in the handshake: chain and host as the library does, then its role.
/// So a server of another role ends the handshake, before anything is sent to it.
///
/// # Safety
///
/// `store` is the library's for this handshake; `functions` points to those of the context, which outlives it.
unsafe extern "C" fn verify(store: Object, functions: Object) -> c_int {
    // SAFETY: by the caller's promise.
    let f = unsafe { &*(functions as *const Functions) };
    // SAFETY: the store is valid.
    let verified = unsafe { (f.X509_verify_cert)(store) };
    if verified != 1 {
        return verified;
    }
    // SAFETY: the store is valid, and owns the certificate.
    if unsafe { f.is_controller((f.X509_STORE_CTX_get0_cert)(store)) } {
        return 1;
    }
    // SAFETY: the store is valid.
    unsafe { (f.X509_STORE_CTX_set_error)(store, ERROR_APPLICATION_VERIFICATION) };
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
    /// Trusts servers with a certificate of `ca` (PEM) that has the role of a controller, and shows the certificate of
    /// `own` (certificate, key).
    pub fn client(ca: &Path, own: Option<(&Path, &Path)>) -> io::Result<Context> {
        let functions = openssl::functions()?;
        // SAFETY: no argument; the method lives as long as the library.
        let method = unsafe { (functions.TLS_client_method)() };
        // SAFETY: a method of the same library.
        let made = unsafe { (functions.SSL_CTX_new)(method) };
        if made.is_null() {
            return Err(functions.error("TLS"));
        }
        let inner = Rc::new(Inner { functions, context: made });
        let f = &inner.functions;
        // SAFETY: the context was just made, and arguments are those that these controls are documented with.
        unsafe {
            (f.SSL_CTX_ctrl)(made, CTRL_SET_LEAST_VERSION, TLS_1_2, ptr::null_mut());
            (f.SSL_CTX_ctrl)(made, CTRL_MODE, MODE_PARTIAL_WRITE_MOVING_BUFFER, ptr::null_mut());
            (f.SSL_CTX_set_verify)(made, VERIFY_PEER, ptr::null_mut());
            (f.SSL_CTX_set_default_passwd_cb)(made, no_password);
        }
        // SAFETY: the functions are behind an `Rc`, so they stay where they are until the context is freed.
        unsafe { (f.SSL_CTX_set_cert_verify_callback)(made, verify, f as *const Functions as Object) };
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
        Ok(Context { inner })
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
    /// Whether the URIs among the alternative names of a certificate have the role of a controller.
    ///
    /// # Safety
    ///
    /// `certificate` is a certificate of the library, or null.
    unsafe fn is_controller(&self, certificate: Object) -> bool {
        if certificate.is_null() {
            return false;
        }
        // SAFETY: a valid certificate; neither criticality nor position are wanted.
        let names =
            unsafe { (self.X509_get_ext_d2i)(certificate, NID_SUBJECT_ALT_NAME, ptr::null_mut(), ptr::null_mut()) };
        if names.is_null() {
            return false;
        }
        // SAFETY: the names are ours until they are freed below; indices are within their number.
        let found =
            unsafe { (0..(self.OPENSSL_sk_num)(names)).any(|i| self.is_role((self.OPENSSL_sk_value)(names, i))) };
        // SAFETY: the names are ours, and nothing points to them any more.
        unsafe { (self.GENERAL_NAMES_free)(names) };
        found
    }

    /// # Safety
    ///
    /// `name` is a GENERAL_NAME of the library.
    unsafe fn is_role(&self, name: Object) -> bool {
        let mut kind = -1;
        // SAFETY: a valid name by the caller's promise; the value is the name's.
        let value = unsafe { (self.GENERAL_NAME_get0_value)(name, &mut kind) };
        if kind != NAME_IS_URI || value.is_null() {
            return false;
        }
        // SAFETY: the value of a URI is an ASN1_STRING, which lives as long as the name.
        let (data, size) = unsafe { ((self.ASN1_STRING_get0_data)(value), (self.ASN1_STRING_length)(value)) };
        if data.is_null() || size < 0 {
            return false;
        }
        // SAFETY: the library says how many bytes are there.
        unsafe { std::slice::from_raw_parts(data, size as usize) == CONTROLLER_URI }
    }

    /// Why a server's certificate is refused.
    fn why_refused(&self, verified: c_long) -> String {
        if verified == c_long::from(ERROR_APPLICATION_VERIFICATION) {
            return NO_ROLE.into();
        }
        // SAFETY: the text is the library's, ends with a zero, and is never freed.
        unsafe { CStr::from_ptr((self.X509_verify_cert_error_string)(verified)) }.to_string_lossy().into_owned()
    }

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
            let why = f.why_refused(verified);
            // SAFETY: no argument.
            unsafe { (f.ERR_clear_error)() };
            return Err(invalid(format!("TLS: the controller's certificate: {why}")));
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
#[path = "tls_tests.rs"]
mod tests;
