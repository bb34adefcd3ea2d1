//! The secret that clients must present. It is kept in memory only.

use std::sync::MutexGuard;

use crate::base::error::{Error, Result};
use crate::base::mutex::Mutex;

const MAX_LENGTH: usize = 4096;

/// A token, which may not be set yet.
#[derive(Default)]
pub struct Token(Mutex<Option<Vec<u8>>>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    pub fn new(token: Option<&str>) -> Self {
        Self(Mutex::new(token.map(|token| token.as_bytes().to_vec())))
    }

    fn current(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.0.lock()
    }

    /// Checks a token over a transport that anybody may reach. Fails with `TokenUnset` when none
    /// was set, and with `Unauthorized` when another was.
    pub fn check(&self, presented: Option<&str>) -> Result<()> {
        match (&*self.current(), presented) {
            (None, _) => Err(Error::TokenUnset),
            (Some(token), Some(presented)) if equal(token, presented.as_bytes()) => Ok(()),
            (Some(_), _) => Err(Error::Unauthorized),
        }
    }

    /// Checks a token over a transport that only the host can reach. The first token that is
    /// presented is kept. Fails with `Unauthorized` when another one was.
    pub fn check_or_set(&self, presented: &str) -> Result<()> {
        let mut current = self.current();
        match &*current {
            None => *current = Some(acceptable(presented)?),
            Some(token) if equal(token, presented.as_bytes()) => {}
            Some(_) => return Err(Error::Unauthorized),
        }
        Ok(())
    }

    /// Sets a new token. Fails with `BadRequest` when it is empty or too long.
    pub fn replace(&self, token: &str) -> Result<()> {
        let token = acceptable(token)?;
        *self.current() = Some(token);
        Ok(())
    }
}

fn acceptable(token: &str) -> Result<Vec<u8>> {
    if token.is_empty() || token.len() > MAX_LENGTH {
        return Err(Error::BadRequest(format!("a token has 1 to {MAX_LENGTH} bytes")));
    }
    Ok(token.as_bytes().to_vec())
}

/// Takes the same time wherever the first wrong byte is.
fn equal(secret: &[u8], presented: &[u8]) -> bool {
    let differences = secret
        .iter()
        .zip(presented)
        .fold(0, |all, (a, b)| all | std::hint::black_box(a ^ b));
    secret.len() == presented.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Code;

    #[test]
    fn the_first_token_is_kept_until_it_is_replaced() {
        let token = Token::default();
        assert_eq!(token.check(Some("a")).unwrap_err().code(), Code::Unavailable);
        token.check_or_set("a").unwrap();
        assert_eq!(token.check_or_set("b").unwrap_err().code(), Code::Unauthorized);
        token.check(Some("a")).unwrap();
        assert!(token.check(Some("ab")).is_err());
        assert!(token.check(None).is_err());
        token.replace("b").unwrap();
        assert!(token.check(Some("a")).is_err());
        assert!(token.replace("").is_err());
    }
}
