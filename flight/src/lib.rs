//! Arrow Flight: so far the DDL, and how the engine's refusals read in gRPC.

pub mod ddl;
pub mod status;
