use super::*;
use crate::edge::testing::Rng;

const CONFIG: &str = r#"{"type":"config","seq":1,"revision":12,"future":true,
    "hello":{"interval_ms":40,"dead_ms":140,"send":[{"technology":"plc","label":1234}],
             "expect":[{"link":"ab-plc~","mac":"02:00:00:00:00:0a"}]},
    "ingress":[{"number":16,"id":"f1","default":false,"queue_ms":60,
      "paths":[{"id":1,"labels":[111,222],"rate_mbps":9.5,"mtu":1600,"interface":null,"dst_mac":null}]}],
    "egress":[{"number":16,"id":"f1","paths":[1,2],"reorder":true,"equalise":true,"max_hold_ms":100}]}"#;

fn refused(line: &str) -> String {
    match parse_request(line) {
        Err(Refusal::Invalid { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_documented_config_is_understood() {
    let (seq, request) = parse_request(CONFIG).unwrap();
    assert_eq!(seq, Some(1));
    match request {
        Request::Config(config) => {
            assert_eq!(config.revision, 12);
            assert_eq!(config.ingress[0].paths[0].rate_mbps, Some(9.5));
            assert_eq!(config.ingress[0].paths[0].overhead(), 20);
            assert_eq!(config.hello.expect[0].mac, [2, 0, 0, 0, 0, 10]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_name_the_place() {
    for (from, to, wanted) in [
        ("\"number\":16,\"id\":\"f1\",\"default\"", "\"number\":3,\"id\":\"f1\",\"default\"", "flow number 3"),
        ("9.5", "-1", "path 1: rate_mbps -1"),
        ("111", "1048576", "more than 20 bits"),
        ("\"mtu\":1600", "\"mtu\":20", "mtu 20"),
        ("[1,2]", "[1,1]", "path 1 twice"),
        ("02:00:00:00:00:0a", "02:00", "expected xx:xx"),
        ("\"dead_ms\":140", "\"dead_ms\":14", "interval_ms <= dead_ms"),
        ("\"dead_ms\":140", "\"dead_ms\":600001", "hello: dead_ms 600001: expected at most 600000"),
        ("\"dead_ms\":140", "\"dead_ms\":18446744073709551615", "expected at most 600000"),
        ("\"interval_ms\":40", "\"interval_ms\":65536", "invalid value"),
        ("\"queue_ms\":60", "\"queue_ms\":\"x\"", "invalid type"),
    ] {
        let line = CONFIG.replacen(from, to, 1);
        assert_ne!(line, CONFIG);
        assert!(refused(&line).contains(wanted), "{}", refused(&line));
    }
    assert!(refused(r#"{"type":"dance","seq":4}"#).contains("unknown type"));
    assert!(refused(r#"{"type":"rates","seq":4,"rates":{"x":{}}}"#).contains("flow \"x\""));
    assert!(refused(r#"{"type":"welcome","version":2}"#).contains("version 2"));
    for key in ["report_ms", "ping_ms"] {
        let line = format!(r#"{{"type":"welcome","version":1,"{key}":18446744073709551615}}"#);
        assert!(refused(&line).contains(&format!("welcome: {key} 18446744073709551615: expected at most 600000")));
    }
}

#[test]
fn rates_by_number_and_path() {
    let (seq, request) = parse_request(r#"{"type":"rates","seq":2,"rates":{"16":{"1":9.5,"2":null}}}"#).unwrap();
    assert_eq!(seq, Some(2));
    match request {
        Request::Rates(flows) => {
            assert_eq!(flows[&16].rates, BTreeMap::from([(1, Some(9.5)), (2, None)]));
            assert!(flows[&16].fill.is_empty());
        }
        other => panic!("{other:?}"),
    }
    let line = r#"{"type":"rates","rates":{"16":{"1":9.5,"2":0}},"fill":{"16":{"1":4.0},"17":{"3":1}}}"#;
    match parse_request(line) {
        Ok((None, Request::Rates(flows))) => {
            assert_eq!(flows[&16].rates, BTreeMap::from([(1, Some(9.5)), (2, Some(0.0))]));
            assert_eq!(flows[&16].fill, BTreeMap::from([(1, 4.0)]));
            assert_eq!(flows[&17].fill, BTreeMap::from([(3, 1.0)]));
        }
        other => panic!("{other:?}"),
    }
    assert!(refused(&line.replace("4.0", "-4")).contains("path 1: fill"));
}

#[test]
fn mutilated_lines_never_panic() {
    let mut rng = Rng::new(21);
    for _ in 0..20_000 {
        let mut bytes = CONFIG.as_bytes().to_vec();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len());
            match rng.below(3) {
                0 => bytes[at] = rng.below(128) as u8,
                1 => bytes.truncate(at.max(1)),
                _ => {
                    bytes.remove(at);
                }
            }
            if bytes.is_empty() {
                bytes.push(b'{');
            }
        }
        let _ = parse_request(&String::from_utf8_lossy(&bytes));
    }
    let deep = format!("{{\"type\":{}", "[".repeat(100_000));
    assert!(matches!(parse_request(&deep), Err(Refusal::Malformed(_))));
}

#[test]
fn replies_are_tagged_lines() {
    assert_eq!(Reply::Ok { seq: Some(7), from: BTreeMap::new() }.line(), r#"{"type":"ok","seq":7}"#);
    let from = BTreeMap::from([(16, 4711)]);
    assert_eq!(Reply::Ok { seq: Some(7), from }.line(), r#"{"type":"ok","seq":7,"from":{"16":4711}}"#);
    let path = PathNotice { id: 1, passed: Some(4711), arrived: None, paused: true };
    assert_eq!(
        Reply::Passed { number: 16, paths: &[path] }.line(),
        r#"{"type":"passed","number":16,"paths":[{"id":1,"passed":4711,"arrived":null,"paused":true}]}"#
    );
    assert_eq!(Reply::Link { link: "ab", up: false }.line(), r#"{"type":"link","link":"ab","up":false}"#);
    assert!(Reply::Report(&Report::default()).line().starts_with(r#"{"type":"report","seq":null"#));
}
