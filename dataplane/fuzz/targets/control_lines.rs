//! Lines and files that the programs read: requests of the agents' protocol, of the client's and of the medium's control
//! socket, the medium's configuration.
//!
//! The first byte says which of them, the second in pieces of how many bytes they come.
#![no_main]
use hyroads_dataplane::client::config::{Config as ClientConfig, Request as ClientRequest};
use hyroads_dataplane::edge::protocol::{parse_request, Request};
use hyroads_dataplane::medium::config::Config as MediumConfig;
use hyroads_dataplane::medium::control::{Control, Meter};
use hyroads_dataplane::medium::model::Model;
use hyroads_dataplane::sys::lines::LineBuffer;
use hyroads_fuzz::Script;

const LONGEST: usize = 4096;
const MEDIUM: &str = r#"{"ports":[{"name":"a","mac":"02:00:00:00:00:01","technology":"wifi"},
    {"name":"b","mac":"02:00:00:00:00:02","technology":"wifi"}],
    "links":[{"id":"ab","from":"a","to":"b","capacity_mbps":20}],"conflicts":{"technology":true}}"#;

fn medium() -> Option<(Model, Control)> {
    let config = MediumConfig::parse(MEDIUM).ok()?;
    Some((Model::new(&config, 0), Control::new(&config)))
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut script = Script(data);
    let (which, piece) = (script.byte(), usize::from(script.byte()).max(1));
    if which % 4 == 3 {
        if let Ok(config) =
            std::str::from_utf8(script.0).map_err(drop).and_then(|t| MediumConfig::parse(t).map_err(drop))
        {
            Model::new(&config, 0).advance(1_000_000, &mut |_, _| true);
        }
        return;
    }
    let mut buffer = LineBuffer::new(LONGEST);
    let mut model = medium();
    let mut meter = Meter::default();
    for part in script.0.chunks(piece) {
        buffer.push(part);
        while let Ok(Some(line)) = buffer.next_line() {
            assert!(line.len() <= LONGEST && !line.contains('\n'));
            match (which % 4, &mut model) {
                (0, _) => {
                    if let Ok((_, Request::Config(config))) = parse_request(line) {
                        assert!(config.check().is_ok());
                    }
                }
                (1, _) => {
                    if let Ok(ClientRequest::Configure(entry)) = serde_json::from_str(line) {
                        drop(ClientConfig::of(&entry));
                    }
                }
                (_, Some((model, control))) => {
                    let reply = control.handle(line, model, &mut meter, 7);
                    assert!(serde_json::from_str::<serde_json::Value>(&reply).is_ok());
                }
                _ => panic!("the medium of this target is wrong"),
            }
        }
        if buffer.next_line().is_err() {
            return;
        }
    }
});
