//! `sluice sql`: a Flight SQL client of a running server.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;

use clap::Args;
use sluice_flight::client::{Client, ClientError};

#[derive(Args)]
pub(super) struct Sql {
    /// Address of the server's Flight listener.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8815")]
    server: String,
    /// The database to begin in.
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// Statements to run, separated by semicolons.
    #[arg(short = 'e', long, value_name = "SQL", conflicts_with = "file")]
    execute: Option<String>,
    /// A file of statements; without one, and without --execute, they are read from the standard input.
    file: Option<PathBuf>,
}

fn show(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

impl Sql {
    pub(super) async fn run(self) -> Result<(), ClientError> {
        let unread = |error: std::io::Error| ClientError::Refused(format!("reading the statements: {error}"));
        let text = match (self.execute, self.file) {
            (Some(text), _) => Some(text),
            (None, Some(path)) => Some(std::fs::read_to_string(path).map_err(unread)?),
            (None, None) if std::io::stdin().is_terminal() => None,
            (None, None) => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).map_err(unread)?;
                Some(text)
            }
        };
        let mut client = Client::connect(&self.server, self.database.as_deref()).await?;
        match text {
            Some(text) => client.run_all(&text, show).await,
            None => converse(&mut client).await,
        }
    }
}

/// Statements as they are typed, each run when its semicolon comes.
async fn converse(client: &mut Client) -> Result<(), ClientError> {
    let (mut text, mut lines) = (String::new(), std::io::stdin().lock().lines());
    loop {
        show(if text.is_empty() { "sluice> " } else { "     -> " });
        let _ = std::io::stdout().flush();
        let Some(Ok(line)) = lines.next() else { return Ok(()) };
        if text.is_empty() && matches!(line.trim(), "exit" | "quit" | "exit;" | "quit;") {
            return Ok(());
        }
        text.push_str(&line);
        text.push('\n');
        if !text.trim_end().ends_with(';') {
            continue;
        }
        match client.run_all(&text, show).await {
            Err(error @ ClientError::Connection { .. }) => return Err(error),
            Err(error) => show(&format!("error: {error}\n")),
            Ok(()) => {}
        }
        text.clear();
    }
}
