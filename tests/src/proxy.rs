//! A TCP proxy between a test and its server, to cut, stall and lose answers, and to count statements.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// What is to become of the next COMMIT that a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtCommit {
    /// The server never sees it, and both sides lose their connection.
    CutBefore,
    /// It is passed on, and both sides lose their connection at once.
    CutIn,
    /// The server has answered it, and the client loses its connection instead of the answer.
    CutAfter,
}

/// How the proxy treats traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    /// Nothing moves, and nothing is closed.
    Stall,
    /// New connections are closed at once.
    Refuse,
}

/// A proxy. Gone when dropped, with all its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    server: String,
    mode: watch::Sender<Mode>,
    at_commit: Mutex<Option<AtCommit>>,
    connections: Mutex<JoinSet<()>>,
    statements: AtomicU64,
}

impl Proxy {
    /// Listens, and passes everything on to `server`, which is `host:port`.
    ///
    /// # Errors
    /// When there is no port to be had.
    pub async fn start(server: String) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            server,
            mode: watch::Sender::new(Mode::Pass),
            at_commit: Mutex::default(),
            connections: Mutex::default(),
            statements: AtomicU64::new(0),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone())).abort_handle();
        Ok(Self { port, shared, accepting })
    }

    /// Where it listens, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    /// Lets nothing through any more, without a word to either side.
    pub fn stall(&self) {
        self.shared.mode.send_replace(Mode::Stall);
    }

    /// Cuts every connection, and closes new ones at once.
    pub fn refuse(&self) {
        self.shared.mode.send_replace(Mode::Refuse);
        self.cut();
    }

    /// Lets everything through again.
    pub fn pass(&self) {
        self.shared.mode.send_replace(Mode::Pass);
    }

    /// How many statements were sent to the server, which is PostgreSQL. Texts with several of them count once.
    #[must_use]
    pub fn statements(&self) -> u64 {
        self.shared.statements.load(Ordering::Relaxed)
    }

    /// Does this to the next COMMIT.
    pub fn at_commit(&self, what: AtCommit) {
        *self.shared.at_commit.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    /// Whether the COMMIT that was asked for has come.
    #[must_use]
    pub fn has_met_a_commit(&self) -> bool {
        self.shared.at_commit.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        if *shared.mode.borrow() == Mode::Refuse {
            continue;
        }
        let connection = connect(client, shared.clone());
        shared.connections.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
            // Whichever side ends it, the other learns of it by the drop.
            let _ = connection.await;
        });
    }
}

async fn connect(client: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let server = TcpStream::connect(&shared.server).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let (met, commit) = watch::channel(None);
    tokio::select! {
        ended = requests(from_client, to_server, &shared, &met) => ended,
        ended = answers(from_server, to_client, &shared, commit) => ended,
    }
}

/// From the client to the server. Clients of ours send a COMMIT as a message of its own.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    met: &watch::Sender<Option<AtCommit>>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut messages = Messages::default();
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        passable(shared).await;
        let chunk = &buffer[..read];
        shared.statements.fetch_add(messages.statements(chunk), Ordering::Relaxed);
        if is_commit(chunk) {
            let asked = shared.at_commit.lock().unwrap_or_else(PoisonError::into_inner).take();
            match asked {
                Some(AtCommit::CutBefore) => return Ok(()),
                Some(AtCommit::CutIn) => {
                    to.write_all(chunk).await?;
                    return Ok(());
                }
                Some(AtCommit::CutAfter) => drop(met.send(asked)),
                None => {}
            }
        }
        to.write_all(chunk).await?;
    }
}

/// A text of its own: a PostgreSQL message with its length, or a MySQL packet with its command. Or what commits a handler's
/// transaction on MySQL, among others.
fn is_commit(chunk: &[u8]) -> bool {
    let has = |text: &[u8]| chunk.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text));
    has(b"\x0bCOMMIT\0") || has(b"\x03COMMIT") || has(b"xa commit ")
}

/// Where one message of a client ends and the next begins.
#[derive(Debug, Default)]
struct Messages {
    /// The head of a message that has not come as a whole: its type, which the first of a connection has not, and the
    /// length of the rest.
    head: Vec<u8>,
    greeted: bool,
    /// How much of the message is still to come.
    rest: usize,
}

impl Messages {
    /// How many statements begin in what comes next.
    fn statements(&mut self, mut chunk: &[u8]) -> u64 {
        let mut statements = 0;
        while !chunk.is_empty() {
            let skipped = self.rest.min(chunk.len());
            self.rest -= skipped;
            chunk = &chunk[skipped..];
            let Some((byte, more)) = chunk.split_first() else { break };
            self.head.push(*byte);
            chunk = more;
            let typed = usize::from(self.greeted);
            let Some(length) = self.head.get(typed..typed + 4) else { continue };
            let length: [u8; 4] = length.try_into().expect("four bytes");
            self.rest = (u32::from_be_bytes(length) as usize).saturating_sub(4);
            // A text, or the execution of what was prepared.
            statements += u64::from(self.greeted && [b'Q', b'E'].contains(&self.head[0]));
            self.greeted = true;
            self.head.clear();
        }
        statements
    }
}

/// From the server to the client.
async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    commit: watch::Receiver<Option<AtCommit>>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 || commit.borrow().is_some() {
            return Ok(());
        }
        passable(shared).await;
        to.write_all(&buffer[..read]).await?;
    }
}

async fn passable(shared: &Shared) {
    // The sender lives as long as `shared`.
    let _ = shared.mode.subscribe().wait_for(|mode| *mode != Mode::Stall).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_counted_however_their_bytes_arrive() {
        let mut bytes = vec![0, 0, 0, 9, 0, 3, 0, 0, 0];
        for (kind, text) in [(b'Q', "select 1"), (b'P', "QQQQ"), (b'E', ""), (b'S', ""), (b'Q', "EEEE")] {
            let length = u32::try_from(text.len() + 4).expect("short");
            bytes.push(kind);
            bytes.extend(length.to_be_bytes());
            bytes.extend(text.as_bytes());
        }
        for size in 1..=bytes.len() {
            let mut messages = Messages::default();
            assert_eq!(bytes.chunks(size).map(|chunk| messages.statements(chunk)).sum::<u64>(), 3, "{size}");
        }
    }
}
