//! See docs/dataplane.md.
