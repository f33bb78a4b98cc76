//! The bytes of a bucket: segments and the small files beside them.

pub mod checked;
pub mod head;
pub mod points;
pub mod segment;
