//! ejection
