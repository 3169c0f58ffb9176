//! Unmodified databases on a mount: PostgreSQL, MariaDB and SQLite, on files of their own.
//!
//! The tests take turns, because each wants the machine for itself. They need FUSE and Debian's
//! packages of the databases; what is missing makes a test print "skipped" and pass, or fail when
//! `THERMOCLINE_REQUIRE_ALL=1`. As root, servers run as the users `postgres` and `mysql`.
//!
//! Sizes are small enough for every day. `THERMOCLINE_TEST_SCALE`, `THERMOCLINE_TEST_SECONDS` and
//! `THERMOCLINE_TEST_ROUNDS` set others; see the constants that they override.

mod crash;
mod flash_faults;
mod ground;
mod maria;
mod mariadb;
mod mounted;
mod plans;
mod postgres;
mod process;
mod server;
mod sqlite_mount;
mod temporary;
