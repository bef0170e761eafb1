//! Status documents.
