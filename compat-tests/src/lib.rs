//! Foreign clients against a running server: starts the real binary on free ports and a directory of
//! its own, kills and restarts it, and runs the suites under `suites/`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Result of a test step; its error says what was seen.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A server process.
#[derive(Debug)]
pub struct Server {
    child: Option<Child>,
    directory: PathBuf,
    _owned: Option<tempfile::TempDir>,
    settings: Vec<(&'static str, String)>,
    kafka: String,
    flight: String,
    http: String,
}

/// How long a server may take to be ready, on a loaded machine.
const READY: Duration = Duration::from_secs(60);

/// The server's binary, built beside the tests.
///
/// # Errors
/// When it is not there: `cargo build --bin sluice` builds it.
pub fn binary() -> Outcome<PathBuf> {
    if let Some(path) = std::env::var_os("SLUICE_BIN") {
        return Ok(path.into());
    }
    let here = std::env::current_exe()?;
    let beside = here.ancestors().skip(1).map(|directory| directory.join("sluice")).find(|path| path.is_file());
    beside.ok_or_else(|| "the binary 'sluice' is not built: cargo build --bin sluice".into())
}

/// The folder of this crate: where Cargo runs it now, which need not be where it was built (a build cache outlives
/// the checkout that filled it).
#[must_use]
pub fn crate_folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

impl Server {
    /// Starts a server in a new directory, with `settings` as environment variables.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn start(settings: &[(&'static str, &str)]) -> Outcome<Self> {
        let owned = tempfile::tempdir()?;
        let mut server = Self {
            child: None,
            directory: owned.path().join("data"),
            _owned: Some(owned),
            settings: settings.iter().map(|(key, value)| (*key, (*value).to_owned())).collect(),
            kafka: "127.0.0.1:0".to_owned(),
            flight: "127.0.0.1:0".to_owned(),
            http: "127.0.0.1:0".to_owned(),
        };
        server.spawn()?;
        Ok(server)
    }

    /// Where clients connect.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.kafka
    }

    /// Where Flight clients connect.
    #[must_use]
    pub fn flight(&self) -> &str {
        &self.flight
    }

    /// Where `/metrics` is.
    #[must_use]
    pub fn http(&self) -> &str {
        &self.http
    }

    /// The data directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// A command that would run this server again.
    ///
    /// # Errors
    /// As [`binary`].
    pub fn command(&self) -> Outcome<Command> {
        let mut command = Command::new(binary()?);
        command.arg("serve").arg("--data-dir").arg(&self.directory);
        command.args(["--kafka-listen", &self.kafka, "--flight-listen", &self.flight, "--http-listen", &self.http]);
        for (key, value) in &self.settings {
            command.env(key, value);
        }
        Ok(command)
    }

    /// Starts the process again on the same ports and directory; returns how long it took to be ready.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn spawn(&mut self) -> Outcome<Duration> {
        let started = Instant::now();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.directory.with_extension("log"))?;
        let mut child = self.command()?.stdout(Stdio::piped()).stderr(log).spawn()?;
        let out = child.stdout.take().ok_or("no stdout")?;
        self.child = Some(child);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let line = receiver.recv_timeout(READY).map_err(|_| format!("the server did not get ready: {}", self.log()))?;
        for word in line.split(' ') {
            match word.split_once('=') {
                Some(("kafka", address)) => address.clone_into(&mut self.kafka),
                Some(("flight", address)) => address.clone_into(&mut self.flight),
                Some(("http", address)) => address.clone_into(&mut self.http),
                _ => {}
            }
        }
        Ok(started.elapsed())
    }

    /// Runs SQL statements by `sluice sql`; what it prints.
    ///
    /// # Errors
    /// Its output when it ends without success.
    pub fn sql(&self, text: &str) -> Outcome<String> {
        let mut command = Command::new(binary()?);
        let output = command.args(["sql", "--server", &self.flight, "--execute", text]).output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(printed);
        }
        Err(format!("{text}: {printed}{}", String::from_utf8_lossy(&output.stderr)).into())
    }

    /// What the server wrote to stderr so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.with_extension("log")).unwrap_or_default()
    }

    /// kill -9.
    ///
    /// # Errors
    /// The operating system's.
    pub fn kill(&mut self) -> Outcome<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// SIGTERM, and waits for a clean end.
    ///
    /// # Errors
    /// When it does not end with success.
    pub fn stop(&mut self) -> Outcome<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
        let status = child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}: {}", self.log()).into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = std::fs::remove_file(self.directory.with_extension("log"));
    }
}

/// Runs `suites/<name>/run.sh BOOTSTRAP arguments…`; its own output is shown when it fails.
///
/// # Errors
/// The suite's output when it ends without success.
pub fn run_suite(name: &str, bootstrap: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Outcome<String> {
    let script = crate_folder().join("suites").join(name).join("run.sh");
    let mut command = Command::new("bash");
    command.arg(script).arg(bootstrap).args(arguments).envs(environment.iter().copied());
    // Cargo points the loader at the librdkafka that it built, which is not the one kcat came with.
    command.env_remove("LD_LIBRARY_PATH");
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(text) } else { Err(format!("suite {name} failed:\n{text}").into()) }
}
