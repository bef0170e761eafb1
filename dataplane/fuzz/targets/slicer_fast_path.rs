//! Packet-ins and flow-mods that the slicer forwards without Python. What it refuses leaves nothing; what it forwards is one
//! whole message, of the same kind, with tables and metadata of the slice.
#![no_main]
use hyroads_dataplane::slicer::layout::{Tenant, PORTS, PORT_WORDS};
use hyroads_dataplane::slicer::messages::{flow_mod, packet_in};
use hyroads_fuzz::Script;

const FIRST_TABLE: u32 = 10;
const TABLES: u32 = 4;

fn tenant(flags: u8) -> Tenant {
    let ports = if flags & 1 == 0 { u64::MAX } else { 0x0e };
    Tenant {
        packet_ins: std::ptr::null_mut(),
        changes: std::ptr::null_mut(),
        entries: std::ptr::null_mut(),
        messages: 0,
        dropped_packet_ins: 0,
        metadata_mask: 0xFFFF,
        queue: if flags & 2 == 0 { 1 } else { -1 },
        first_table: FIRST_TABLE,
        table_count: TABLES,
        ports_known: 1,
        uniform: u32::from(flags & 4 == 0),
        guest_count: 0,
        padding: 0,
        ports: [ports; PORT_WORDS],
        whole: [if flags & 8 == 0 { u64::MAX } else { 0 }; PORT_WORDS],
        guests: [std::ptr::null_mut(); 8],
    }
}

fn is_one_message(out: &[u8]) -> bool {
    out.len() >= 8 && usize::from(out[2]) << 8 | usize::from(out[3]) == out.len()
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut script = Script(data);
    let tenant = tenant(script.byte());
    let message = script.0;
    let kinds = [0; PORTS];
    let mut out = vec![0xEE; 3];
    if packet_in(message, &tenant, &mut out) {
        let sent = &out[3..];
        assert!(is_one_message(sent) && sent[1] == message[1] && u32::from(sent[15]) < TABLES);
        assert_eq!(sent[4..8], message[4..8], "a packet-in keeps its id");
    } else {
        assert_eq!(out.len(), 3);
    }
    out.truncate(3);
    if flow_mod(message, &tenant, &kinds, 7, &mut out) {
        let sent = &out[3..];
        assert!(is_one_message(sent) && sent[1] == message[1]);
        assert_eq!(sent[4..8], 7u32.to_be_bytes());
        assert!((FIRST_TABLE..FIRST_TABLE + TABLES).contains(&u32::from(sent[24])), "a table of the slice");
    } else {
        assert_eq!(out.len(), 3);
    }
});
