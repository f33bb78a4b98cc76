//! The seam for statements that change something: a text comes in, the number of rows that it changed goes out.

use std::sync::Arc;

use sluice_engine::Backend;
use tonic::Status;

/// Runs a statement of DDL.
///
/// # Errors
/// UNIMPLEMENTED for now, whatever the text: [`crate::ddl::parse`] is to be wired to the catalog here.
pub(crate) async fn execute(_backend: &Arc<dyn Backend>, _text: &str) -> Result<i64, Status> {
    Err(Status::unimplemented("statements that change tables are not offered over Flight SQL yet"))
}
