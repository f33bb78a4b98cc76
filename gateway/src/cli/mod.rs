//! The command line: `sluice serve`, `sluice sql`, `sluice topic …`.

mod client;
mod sql;
mod topic;

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::{Config, ConfigError, Gateway};

/// The exit code of a wrong command line or config (sysexits(3): 64 usage, 78 config).
const EXIT_CONFIG: u8 = 78;
const EXIT_FAILED: u8 = 1;

#[derive(Parser)]
#[command(name = "sluice", version, about = "Tables served over the Kafka wire protocol and Arrow Flight")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server.
    Serve(Serve),
    /// Create, list, describe and delete topics of a running server.
    Topic(topic::Topic),
    /// Run SQL statements on a running server.
    Sql(sql::Sql),
}

#[derive(Args)]
struct Serve {
    /// TOML file with settings.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory (data.dir).
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address of the Kafka listener (kafka.listen).
    #[arg(long, value_name = "ADDR")]
    kafka_listen: Option<SocketAddr>,
    /// Address of the Flight and Flight SQL listener (flight.listen).
    #[arg(long, value_name = "ADDR")]
    flight_listen: Option<SocketAddr>,
    /// Address of /metrics, /healthz and /readyz (http.listen).
    #[arg(long, value_name = "ADDR")]
    http_listen: Option<SocketAddr>,
}

impl Serve {
    fn settings(self) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        if let Some(path) = &self.config {
            config.read_file(path)?;
        }
        config.read_environment(std::env::vars())?;
        config.data_dir = self.data_dir.unwrap_or(config.data_dir);
        config.kafka_listen = self.kafka_listen.unwrap_or(config.kafka_listen);
        config.flight_listen = self.flight_listen.unwrap_or(config.flight_listen);
        config.http_listen = self.http_listen.unwrap_or(config.http_listen);
        Ok(config)
    }
}

/// Runs the command line; the result is the process's exit code.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}"), EXIT_FAILED),
    };
    match cli.command {
        Command::Serve(arguments) => runtime.block_on(serve(arguments)),
        Command::Topic(command) => match runtime.block_on(command.run()) {
            Ok(text) => {
                let _ = std::io::stdout().write_all(text.as_bytes());
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error.to_string(), EXIT_FAILED),
        },
        Command::Sql(command) => match runtime.block_on(command.run()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string(), EXIT_FAILED),
        },
    }
}

fn fail(message: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "sluice: {message}");
    ExitCode::from(code)
}

async fn serve(arguments: Serve) -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SLUICE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
    let config = match arguments.settings() {
        Ok(config) => config,
        Err(error) => return fail(&error.to_string(), EXIT_CONFIG),
    };
    let signals = signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
    let (mut terminate, mut interrupt) = match signals {
        Ok(signals) => signals,
        Err(error) => return fail(&format!("cannot listen for signals: {error}"), EXIT_FAILED),
    };
    let gateway = match Gateway::start(config).await {
        Ok(gateway) => gateway,
        Err(error) => return fail(&error.to_string(), error.exit_code()),
    };
    // One line on stdout for people and scripts that wait for it.
    let (kafka, flight, http) = (gateway.kafka_address(), gateway.flight_address(), gateway.http_address());
    let _ = writeln!(std::io::stdout(), "ready kafka={kafka} flight={flight} http={http}");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    match gateway.stop().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string(), EXIT_FAILED),
    }
}
