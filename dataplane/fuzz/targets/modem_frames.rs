//! Frames that reach the emulated power-line adapter from its host and from the line, and answers of its medium.
//!
//! The first byte says which: 0 frames, each after a byte (1: from the line) and two bytes with its length; 1 answers of
//! the medium, a line each; another: the adapter's configuration.
#![no_main]
use hyroads_dataplane::modem::answers::{course, indication, Course};
use hyroads_dataplane::modem::bridge::{unwrap, wrap, Bridge, Place};
use hyroads_dataplane::modem::config::Config;
use hyroads_dataplane::modem::line::Line;
use hyroads_dataplane::modem::medium::Reports;
use hyroads_fuzz::Script;

const ADAPTER: &str = r#"{"mac":"00:0b:3b:aa:00:01","tei":1,"medium":{"socket":"/m","port":"a"},"stations":[
    {"mac":"00:0b:3b:aa:00:02","tei":2,"block_errors":0.5,"tx_link":"ab","rx_link":"ba"},
    {"mac":"00:0b:3b:aa:00:03","tei":3,"tx_link":"ac","rx_link":"ca"}]}"#;
const LONGEST: usize = 1514;
const SHORTEST: usize = 60;

fn frames(mut script: Script, config: &Config) {
    let (mut line, mut bridge) = (Line::new(config, 0), Bridge::default());
    let mut now_ns = 0;
    while !script.is_at_end() {
        let (from_line, frame) = (script.byte() == 1, script.bytes());
        let answered = if from_line {
            match unwrap(config.mac, &config.stations, frame) {
                Some(received) => {
                    assert!(received.inner.len() >= 14);
                    if let Some(station) = received.station {
                        bridge.learn(received.inner, Place::Station(station));
                    }
                    course(config, &mut line, received.inner, false)
                }
                None => continue,
            }
        } else {
            bridge.learn(frame, Place::Inside);
            course(config, &mut line, frame, true)
        };
        if let Course::Answered(answers) | Course::Both(answers) = answered {
            for answer in answers {
                assert!((SHORTEST..=LONGEST).contains(&answer.len()));
                let to = match bridge.place(&answer) {
                    Some(Place::Station(station)) => config.stations.get(station),
                    _ => None,
                };
                let sent = wrap(config.mac, to, &answer);
                assert!(sent.ends_with(&answer));
            }
        }
        now_ns += 10_000_000;
        line.advance(config, now_ns);
        for delimiter in line.indications() {
            assert!(indication(config, [2; 6], &delimiter, now_ns).len() >= SHORTEST);
        }
    }
}

fn answers(script: Script, config: &Config) {
    let (mut line, reports) = (Line::new(config, 0), Reports::new(config));
    let mut reports = match reports {
        Some(reports) => reports,
        None => panic!("the adapter of this target has a medium"),
    };
    line.sniff(true);
    for answer in script.0.split(|&byte| byte == b'\n') {
        let answer = match std::str::from_utf8(answer) {
            Ok(answer) => answer,
            Err(_) => return,
        };
        match reports.take(answer) {
            Ok(Some(aired)) => line.aired(config, &aired),
            Ok(None) => {}
            Err(_) => return,
        }
        line.indications();
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut script = Script(data);
    let which = script.byte();
    if which > 1 {
        if let Some(config) = std::str::from_utf8(script.0).ok().and_then(|text| Config::parse(text).ok()) {
            assert!(config.stations.len() <= 254);
        }
        return;
    }
    match (Config::parse(ADAPTER), which) {
        (Ok(config), 0) => frames(script, &config),
        (Ok(config), _) => answers(script, &config),
        (Err(error), _) => panic!("the adapter of this target is wrong: {error}"),
    }
});
