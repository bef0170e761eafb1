//! The parts of JSON that frequent lines are made of. `None` says that a text is for the reference parser.

/// No counter is greater (`MOST` of the protocol).
const MOST: f64 = 1e300;
/// Every whole number below is a float, and no other one is rounded to it.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A place in a line.
pub struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    /// At the beginning of a text.
    pub fn new(text: &'a [u8]) -> Self {
        Scan { text, at: 0 }
    }

    fn space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Whether this character comes next, after space; it is passed then.
    pub fn takes(&mut self, wanted: u8) -> bool {
        self.space();
        let found = self.text.get(self.at) == Some(&wanted);
        self.at += usize::from(found);
        found
    }

    /// This character, or nothing.
    pub fn expect(&mut self, wanted: u8) -> Option<()> {
        if self.takes(wanted) {
            Some(())
        } else {
            None
        }
    }

    /// Whether nothing is left but space.
    pub fn is_at_end(&mut self) -> bool {
        self.space();
        self.at == self.text.len()
    }

    /// A text of printable ASCII without escapes.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let rest = self.text.get(self.at..)?;
        let length = rest.iter().position(|&c| c == b'"' || c == b'\\' || !(b' '..=b'~').contains(&c))?;
        if rest[length] != b'"' {
            return None;
        }
        self.at += length + 1;
        Some(&rest[..length])
    }

    /// The name of an object's next member, and its colon.
    pub fn name(&mut self) -> Option<&'a [u8]> {
        let name = self.text()?;
        self.expect(b':')?;
        Some(name)
    }

    fn digits(&mut self) -> Option<()> {
        let from = self.at;
        while matches!(self.text.get(self.at), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at > from {
            Some(())
        } else {
            None
        }
    }

    /// A number within the bounds of counters, and whether it is written as a whole one.
    fn written(&mut self) -> Option<(f64, bool)> {
        self.space();
        let from = self.at;
        self.at += usize::from(self.text.get(self.at) == Some(&b'-'));
        if self.text.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        let mut is_whole = true;
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
            is_whole = false;
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.text.get(self.at), Some(b'+' | b'-')));
            self.digits()?;
            is_whole = false;
        }
        // `parse` rounds as Python does: to the nearest float.
        let value: f64 = std::str::from_utf8(self.text.get(from..self.at)?).ok()?.parse().ok()?;
        if value.abs() <= MOST {
            Some((value, is_whole))
        } else {
            None
        }
    }

    /// A number.
    pub fn number(&mut self) -> Option<f64> {
        self.written().map(|(value, _)| value)
    }

    /// A number, or nan for null.
    pub fn number_or_null(&mut self) -> Option<f64> {
        self.space();
        if self.text.get(self.at..)?.starts_with(b"null") {
            self.at += 4;
            return Some(f64::NAN);
        }
        self.number()
    }

    /// A whole number from 0, below 2^53.
    pub fn whole(&mut self) -> Option<u64> {
        let (value, is_whole) = self.written()?;
        if is_whole && (0.0..EXACT).contains(&value) {
            Some(value as u64)
        } else {
            None
        }
    }

    /// Passes a value of any kind, of a text that is known to be JSON without escapes.
    pub fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            self.space();
            match self.text.get(self.at)? {
                b'"' => {
                    self.text()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                _ => {
                    let rest = &self.text[self.at..];
                    let is_end = |c: &u8| matches!(c, b',' | b':' | b'}' | b']' | b'"' | b'{' | b'[' | b' ');
                    self.at += rest.iter().position(is_end).filter(|&length| length > 0)?;
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// The members of an object or a list: calls `each` until the end.
    pub fn members(&mut self, open: u8, close: u8, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(open)?;
        if self.takes(close) {
            return Some(());
        }
        loop {
            each(self)?;
            if self.takes(close) {
                return Some(());
            }
            self.expect(b',')?;
        }
    }
}
