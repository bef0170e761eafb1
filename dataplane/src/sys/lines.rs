//! Newline-delimited text over a non-blocking stream, bounded in both directions.

use super::{context, invalid};
use std::io::{self, Read, Write};
use std::os::unix::io::{AsRawFd, RawFd};

/// Longest line of the control protocols, in bytes without its newline.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// Most output that may wait for a slow reader.
pub const MAX_OUTPUT_BYTES: usize = 4 << 20;
/// Most input taken from one peer before others get their turn.
const READ_BUDGET_BYTES: usize = 256 << 10;

/// Cuts a stream of bytes into lines. Pure: bytes in, lines out.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Start of what was not handed out yet.
    start: usize,
    /// Everything before this holds no newline; keeps the search linear.
    searched: usize,
    max_line_bytes: usize,
}

impl LineBuffer {
    /// An empty buffer; longer lines than `max_line_bytes` are an error.
    pub fn new(max_line_bytes: usize) -> Self {
        LineBuffer { bytes: Vec::new(), start: 0, searched: 0, max_line_bytes }
    }

    /// Adds bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line, without its newline (or CR LF). After an error the stream can't be trusted: close it.
    pub fn next_line(&mut self) -> io::Result<Option<&str>> {
        let newline = self.bytes[self.searched..].iter().position(|&b| b == b'\n').map(|i| self.searched + i);
        let length = newline.unwrap_or(self.bytes.len()) - self.start;
        if length > self.max_line_bytes {
            return Err(invalid(format!("line longer than {} bytes", self.max_line_bytes)));
        }
        let end = match newline {
            Some(end) => end,
            None => {
                self.searched = self.bytes.len();
                return Ok(None);
            }
        };
        let line = &self.bytes[self.start..end];
        self.start = end + 1;
        self.searched = end + 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        std::str::from_utf8(line).map(Some).map_err(|_| invalid("line is not UTF-8"))
    }
}

/// Whether the other side still sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// More may come.
    Open,
    /// The other side closed; lines already received can still be taken.
    Closed,
}

/// Lines over a non-blocking stream (TCP or Unix).
#[derive(Debug)]
pub struct LineStream<S> {
    stream: S,
    input: LineBuffer,
    output: Vec<u8>,
    /// Start of what was not written yet.
    sent: usize,
    max_output_bytes: usize,
}

impl<S: Read + Write> LineStream<S> {
    /// Takes over a stream that was set non-blocking, with the limits of the control protocols.
    pub fn new(stream: S) -> Self {
        LineStream::with_limits(stream, MAX_LINE_BYTES, MAX_OUTPUT_BYTES)
    }

    /// The same with limits of one's own, in bytes.
    pub fn with_limits(stream: S, max_line_bytes: usize, max_output_bytes: usize) -> Self {
        LineStream { stream, input: LineBuffer::new(max_line_bytes), output: Vec::new(), sent: 0, max_output_bytes }
    }

    /// The stream itself.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Takes what has arrived (a bounded part of it: epoll is level triggered). Call `next_line` until it gives None.
    pub fn fill(&mut self) -> io::Result<Peer> {
        let mut chunk = [0u8; 16 << 10];
        let mut taken = 0;
        while taken < READ_BUDGET_BYTES {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(Peer::Closed),
                Ok(n) => {
                    self.input.push(&chunk[..n]);
                    taken += n;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(context(error, "read control stream")),
            }
        }
        Ok(Peer::Open)
    }

    /// The next line received. After an error close the stream.
    pub fn next_line(&mut self) -> io::Result<Option<&str>> {
        self.input.next_line()
    }

    /// Queues one line (the newline is added). Errors, and queues nothing, if the peer doesn't read what is waiting.
    pub fn queue(&mut self, line: &str) -> io::Result<()> {
        if self.output.len() - self.sent + line.len() + 1 > self.max_output_bytes {
            return Err(invalid(format!("peer is too slow: {} bytes wait for it", self.output.len() - self.sent)));
        }
        if self.sent > 0 {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        self.output.extend_from_slice(line.as_bytes());
        self.output.push(b'\n');
        Ok(())
    }

    /// Writes as much as the stream takes. True: nothing is left; false: wait until it is writable.
    pub fn flush(&mut self) -> io::Result<bool> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::WriteZero, "control stream takes no more")),
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(context(error, "write control stream")),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Whether output is waiting.
    pub fn wants_write(&self) -> bool {
        self.sent < self.output.len()
    }
}

impl<S: AsRawFd> AsRawFd for LineStream<S> {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn lines_come_out_whole_however_they_arrive() {
        let text = "one\ntwo\r\n\nfour é\n";
        for size in 1..text.len() {
            let mut buffer = LineBuffer::new(16);
            let mut lines = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                buffer.push(chunk);
                while let Some(line) = buffer.next_line().unwrap() {
                    lines.push(line.to_string());
                }
            }
            assert_eq!(lines, ["one", "two", "", "four é"]);
        }
    }

    #[test]
    fn long_lines_and_bad_text_are_errors() {
        let mut buffer = LineBuffer::new(4);
        buffer.push(b"1234\n12345");
        assert_eq!(buffer.next_line().unwrap(), Some("1234"));
        assert!(buffer.next_line().is_err());
        let mut buffer = LineBuffer::new(4);
        buffer.push(b"\xff\xff\n");
        assert!(buffer.next_line().is_err());
    }

    #[test]
    fn a_peer_that_does_not_read_is_bounded() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut stream = LineStream::with_limits(ours, 1 << 16, 1 << 16);
        let line = "x".repeat(1000);
        let mut queued = 0;
        while stream.queue(&line).is_ok() {
            queued += 1;
            stream.flush().unwrap();
            assert!(queued < 100_000);
        }
        assert!(stream.wants_write());
        // Once the peer reads, all that was accepted arrives.
        theirs.set_nonblocking(true).unwrap();
        let mut reader = LineStream::new(theirs);
        let mut received = 0;
        while received < queued {
            stream.flush().unwrap();
            assert_eq!(reader.fill().unwrap(), Peer::Open);
            while let Some(got) = reader.next_line().unwrap() {
                assert_eq!(got, line);
                received += 1;
            }
        }
        drop(stream);
        assert_eq!(reader.fill().unwrap(), Peer::Closed);
    }
}
