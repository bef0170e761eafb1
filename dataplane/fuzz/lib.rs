//! What the targets share: inputs that are a sequence of steps.

/// Reads an input from its beginning; at the end everything is 0 or empty.
pub struct Script<'a>(pub &'a [u8]);

impl<'a> Script<'a> {
    /// Whether nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        self.part(1).first().copied().unwrap_or(0)
    }

    /// Two bytes, the high one first.
    pub fn number(&mut self) -> u16 {
        u16::from(self.byte()) << 8 | u16::from(self.byte())
    }

    /// So many bytes, or what is left.
    pub fn part(&mut self, len: usize) -> &'a [u8] {
        let (part, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        part
    }

    /// Bytes in front of which two bytes say how many they are.
    pub fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.number());
        self.part(len)
    }
}
