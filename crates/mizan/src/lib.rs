//! mizan
