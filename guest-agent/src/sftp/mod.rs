//! An SFTP server, version 3, on standard input and output.
//!
//! It runs as the user whose files it serves, so the kernel decides what that user may do. Its
//! client is at the other end of an SSH connection. It answers requests in their order.
//! Sources: draft-ietf-secsh-filexfer-02, and OpenSSH's PROTOCOL, section 4.

mod attributes;
mod handles;
mod listing;
mod paths;
mod requests;
mod wire;

use std::io::{self, BufReader, Read, Write};
use std::process::ExitCode;

use crate::base::spawn::{self, Credentials};
use requests::Server;
use wire::Answers;

const BUFFER: usize = 256 * 1024;
/// Answers are written when they have so many bytes, also if more requests wait.
const FLUSH_AT: usize = 256 * 1024;

/// Serves by the rights that `words` say (`Credentials::to_words`), or by its own if there are none,
/// until the client closes its side. The exit code is 0 unless the client broke the protocol.
pub fn run(words: &[String]) -> ExitCode {
    match take_on(words).and_then(|()| serve(io::stdin().lock(), io::stdout().lock())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sftp: {error}");
            ExitCode::FAILURE
        }
    }
}

fn take_on(words: &[String]) -> io::Result<()> {
    if words.is_empty() {
        return Ok(());
    }
    let credentials = Credentials::parse(words).ok_or(io::ErrorKind::InvalidInput)?;
    // This is the only thread of the user's own process.
    spawn::become_user(&credentials)
}

fn serve(input: impl Read, mut output: impl Write) -> io::Result<()> {
    let mut input = BufReader::with_capacity(BUFFER, input);
    let mut server = Server::default();
    let mut answers = Answers::default();
    let mut packet = Vec::new();
    while wire::read_packet(&mut input, &mut packet)? {
        server.answer(&packet, &mut answers)?;
        if input.buffer().is_empty() || answers.bytes.len() >= FLUSH_AT {
            output.write_all(&answers.bytes)?;
            output.flush()?;
            answers.bytes.clear();
        }
    }
    output.write_all(&answers.bytes)?;
    output.flush()
}

#[cfg(test)]
mod tests;
