//! The routing table that balancers share: where it is, how it is followed, and which of what was seen is in force.
//!
//! | module | what it does |
//! | --- | --- |
//! | `layout` | which keys of a store are ours |
//! | `open` | opens a store by its address |
//! | [`table`] | follows the table for ever, and judges whether what it says may come into force |
//! | [`author`] | as whom the author of an edit is known |
//! | [`editor`] | changes the table: compared, checked, written down, taken back |
//! | [`instances`] | instances that say of themselves where they are, and who of them is gone |
//! | [`last_good`] | keeps the table that came into force last for the next start |
//! | [`sidecar`] | writes the table as a file, for programs that ask no network |
//! | [`nodes`] | what each balancer has in force, told to all |
//! | [`ticket_keys`] | secrets of TLS sessions that instances share |
//! | [`clocks`] | whether the balancers' clocks agree |
//!
//! Nothing here is asked while a request is served: traffic goes by the snapshot, whatever becomes of the store.

pub mod author;
pub mod clocks;
pub mod editor;
pub mod instances;
pub mod last_good;
mod layout;
pub mod nodes;
mod open;
pub mod sidecar;
pub mod table;
pub mod ticket_keys;

pub use layout::Layout;
pub use open::{OpenError, open};
