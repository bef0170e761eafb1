//! What the kernel writes: rtnetlink, generic netlink, frames of emulated radios. Their insides come from the air.
#![no_main]
use hyroads_dataplane::medium::{dot11, hwsim};
use hyroads_dataplane::sys::{genetlink, netlink};

const FAMILY: u16 = 0x20;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut changes = Vec::new();
    netlink::parse(data, &mut changes);
    // A message of no bytes says nothing.
    assert!(changes.len() <= data.len());
    let odd = genetlink::parse(data, FAMILY, |received| {
        if let genetlink::Received::Message { attributes, .. } = received {
            if let Some(sent) = hwsim::read_frame(attributes) {
                assert!(dot11::payload_bytes(sent.frame) <= sent.frame.len() as u64);
                dot11::receiver(sent.frame);
            }
        }
    });
    assert!(odd <= data.len() as u64);
    if let Some(sent) = hwsim::read_frame(data) {
        dot11::receiver(sent.frame);
    }
    dot11::receiver(data);
    assert!(dot11::payload_bytes(data) <= data.len() as u64);
});
