//! The functions of OpenSSL that TLS needs.
//!
//! A dynamic program loads the system's library when the options name an authority. So the program needs OpenSSL neither
//! where it is built nor where it runs without TLS, and the distribution's updates of the library are enough. A static
//! program can load no library: with the feature `static-openssl`, OpenSSL is linked in (scripts/cross.sh builds it).
//! Without that feature a static program has no TLS, and an option that needs TLS ends it.

use libc::{c_char, c_int, c_long, c_ulong, c_void};

#[cfg(feature = "static-openssl")]
pub use linked::functions;
#[cfg(not(feature = "static-openssl"))]
pub use loaded::functions;

pub type Object = *mut c_void;
type Text = *const c_char;
type PasswordCallback = extern "C" fn(*mut c_char, c_int, c_int, Object) -> c_int;
type VerifyCallback = unsafe extern "C" fn(Object, Object) -> c_int;

/// Declares the functions that are used, and how each is found by its name.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_snake_case)]
        pub struct Functions { $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        #[cfg(not(feature = "static-openssl"))]
        impl Functions {
            /// # Safety
            ///
            /// `library` is a handle of OpenSSL's libssl, which is never closed.
            unsafe fn of(library: Object) -> std::io::Result<Functions> {
                // SAFETY: each symbol of OpenSSL has the type that its header says, which is the one declared here.
                Ok(Functions { $($name: unsafe {
                    std::mem::transmute::<Object, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                        loaded::symbol(library, stringify!($name))?,
                    )
                },)* })
            }
        }

        #[cfg(feature = "static-openssl")]
        mod linked {
            use super::*;

            #[link(name = "ssl", kind = "static")]
            #[link(name = "crypto", kind = "static")]
            extern "C" { $(fn $name($(_: $argument),*) $(-> $result)?;)* }

            /// Those of the library that is part of this program; never fails.
            pub fn functions() -> std::io::Result<Functions> {
                Ok(Functions { $($name,)* })
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
    SSL_CTX_set_cert_verify_callback: fn(Object, VerifyCallback, Object);
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
    X509_verify_cert: fn(Object) -> c_int;
    X509_STORE_CTX_get0_cert: fn(Object) -> Object;
    X509_STORE_CTX_set_error: fn(Object, c_int);
    X509_get_ext_d2i: fn(Object, c_int, *mut c_int, *mut c_int) -> Object;
    OPENSSL_sk_num: fn(Object) -> c_int;
    OPENSSL_sk_value: fn(Object, c_int) -> Object;
    GENERAL_NAME_get0_value: fn(Object, *mut c_int) -> Object;
    GENERAL_NAMES_free: fn(Object);
    ASN1_STRING_get0_data: fn(Object) -> *const u8;
    ASN1_STRING_length: fn(Object) -> c_int;
    ERR_get_error: fn() -> c_ulong;
    ERR_clear_error: fn();
    ERR_error_string_n: fn(c_ulong, *mut c_char, usize);
}

#[cfg(not(feature = "static-openssl"))]
mod loaded {
    use super::super::invalid;
    use super::{Functions, Object};
    use std::ffi::CString;
    use std::io;

    /// The interfaces of both are the same as far as they are used here.
    const LIBRARIES: [&str; 2] = ["libssl.so.3", "libssl.so.1.1"];
    const STATIC: &str = "--ca: this program is static and was built without OpenSSL, so it has no TLS: run another, \
        or dial the controller through a TLS client such as stunnel";

    /// # Safety
    ///
    /// `library` is a handle that `dlopen` gave.
    pub unsafe fn symbol(library: Object, name: &str) -> io::Result<Object> {
        let text = CString::new(name)?;
        // SAFETY: the handle is valid by the caller's promise, the name ends with a zero.
        let found = unsafe { libc::dlsym(library, text.as_ptr()) };
        if found.is_null() {
            return Err(invalid(format!("TLS: the OpenSSL of this system has no {name}")));
        }
        Ok(found)
    }

    /// Those of the system's library, which is loaded and stays so. Fails where there is none, and in a static program.
    pub fn functions() -> io::Result<Functions> {
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
}
