//! Child processes that tests kill.

use std::io;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

/// A running worker. Killed when dropped.
///
/// Its stdin is a pipe that nobody writes to: it ends when the test's process does, however that ends, and a
/// worker that reads it leaves nothing running behind.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Kept apart: waiting for a child closes its stdin first.
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts `program`, which is `env!("CARGO_BIN_EXE_outbox-test-worker")` in the suites.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn spawn(program: &str, arguments: &[&str]) -> io::Result<Self> {
        Self::start(Command::new(program).args(arguments))
    }

    /// [`spawn`](Self::spawn) with an environment, or anything else that a command can have.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let stdin = child.stdin.take();
        Ok(Self { child, _stdin: stdin })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended by itself.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn is_running(&mut self) -> io::Result<bool> {
        self.child.try_wait().map(|status| status.is_none())
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// SIGKILL, and waits for the end.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn terminate(&mut self) -> io::Result<ExitStatus> {
        self.signal("TERM")?;
        self.wait()
    }

    /// SIGSTOP: it stands still with everything that it holds.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn stop(&self) -> io::Result<()> {
        self.signal("STOP")
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn resume(&self) -> io::Result<()> {
        self.signal("CONT")
    }

    /// By the shell, since the standard library can send SIGKILL only.
    fn signal(&self, name: &str) -> io::Result<()> {
        let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.id())).status()?;
        if sent.success() { Ok(()) } else { Err(io::Error::other(format!("SIG{name} was not sent"))) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
