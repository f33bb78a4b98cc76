//! A Flight SQL client for the command line: statements in, tables as text out.

use std::fmt::Write;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::TryStreamExt;
use tonic::transport::{Channel, Endpoint};

use crate::ddl::split_statements;

/// Why statements did not run.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server there, or it went away.
    #[error("{address}: {error}")]
    Connection {
        /// The server's address.
        address: String,
        /// What the transport says.
        error: String,
    },
    /// The server refused, or the text is no list of statements.
    #[error("{0}")]
    Refused(String),
}

fn refused(error: impl Into<FlightError>) -> ClientError {
    match error.into() {
        FlightError::Tonic(status) => ClientError::Refused(status.message().to_owned()),
        other => ClientError::Refused(other.to_string()),
    }
}

/// A session with a server.
pub struct Client {
    sql: FlightSqlServiceClient<Channel>,
}

impl Client {
    /// Connects to `host:port`; `database` is the current one, if it is not the default.
    ///
    /// # Errors
    /// [`ClientError::Connection`].
    pub async fn connect(address: &str, database: Option<&str>) -> Result<Self, ClientError> {
        let fault = |error: &dyn std::fmt::Display| ClientError::Connection {
            address: address.to_owned(),
            error: error.to_string(),
        };
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| fault(&error))?;
        let channel = endpoint.connect().await;
        // What tonic itself says is only that there was an error.
        let why = |error: tonic::transport::Error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            fault(&cause)
        };
        let mut client = Self { sql: FlightSqlServiceClient::new(channel.map_err(why)?) };
        if let Some(database) = database {
            client.run(&format!("USE `{}`", database.replace('`', "``"))).await?;
        }
        Ok(client)
    }

    /// Runs the statements of a text one by one, and hands what each answers to `show`.
    ///
    /// # Errors
    /// The first statement that is refused; those before it did run.
    pub async fn run_all(&mut self, text: &str, mut show: impl FnMut(&str)) -> Result<(), ClientError> {
        let statements = split_statements(text).map_err(|error| ClientError::Refused(error.to_string()))?;
        for statement in statements {
            let answer = self.run(statement).await?;
            show(&answer);
        }
        Ok(())
    }

    /// Runs one statement; its answer is a table, or how many rows it changed.
    async fn run(&mut self, text: &str) -> Result<String, ClientError> {
        let mut prepared = self.sql.prepare(text.to_owned(), None).await.map_err(refused)?;
        if prepared.dataset_schema().map_err(refused)?.fields().is_empty() {
            let count = prepared.execute_update().await.map_err(refused)?;
            return Ok(if count > 0 { format!("{count} rows\n") } else { "OK\n".to_owned() });
        }
        let info = prepared.execute().await.map_err(refused)?;
        let schema = info.clone().try_decode_schema().map_err(refused)?;
        let mut batches = Vec::new();
        for ticket in info.endpoint.into_iter().filter_map(|endpoint| endpoint.ticket) {
            let stream = self.sql.do_get(ticket).await.map_err(refused)?;
            batches.extend(stream.try_collect::<Vec<RecordBatch>>().await.map_err(refused)?);
        }
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(schema.into()));
        }
        let mut text = pretty_format_batches(&batches).map_err(refused)?.to_string();
        let _ = write!(text, "\n{rows} rows\n");
        Ok(text)
    }
}
