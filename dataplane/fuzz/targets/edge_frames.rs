//! Frames as they come to an agent: labels, VLAN tags as labels, shims, hellos. What is read is what would be written.
#![no_main]
use hyroads_dataplane::edge::frame::*;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    match parse_network(data) {
        FromNetwork::Shim { shim, seal, inner_at } => {
            let mut written = [0; SHIM_LEN];
            match seal {
                Some(seal) => written = shim.encode_sealed(seal.generation.into()),
                None => shim.encode(&mut written),
            }
            assert!(inner_at <= data.len());
            assert_eq!(written, data[ETHERNET_LEN..ETHERNET_LEN + SHIM_LEN]);
        }
        FromNetwork::Hello { hello, seal, .. } => {
            let written = hello.encode();
            assert_eq!(written[..7], data[ETHERNET_LEN..ETHERNET_LEN + 7]);
            if let Some(seal) = seal {
                let again = Hello::decode_sealed(&hello.encode_sealed(seal.generation.into(), seal.tag));
                assert_eq!(again, Some((hello, Some(seal))));
            }
        }
        FromNetwork::Labelled | FromNetwork::Malformed => {}
    }
    match parse_access(data) {
        FromAccess::Labelled { inner_at, .. } => assert!(data.len() >= inner_at + ETHERNET_LEN),
        FromAccess::Tagged { tags, .. } => {
            let mut frame = data.to_vec();
            put_tags_back(&mut frame, tags);
            // The user's addresses are in front, the rest of the frame is where it was.
            assert_eq!(frame[INNER_AT..INNER_AT + 12], data[INNER_AT + 4 * tags..INNER_AT + 4 * tags + 12]);
            assert_eq!(frame[INNER_AT + 12 + 4 * tags..], data[INNER_AT + 12 + 4 * tags..]);
        }
        FromAccess::Plain | FromAccess::Malformed => {}
    }
});
