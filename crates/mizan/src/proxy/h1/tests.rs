//! Tests of the codec.
