//! The terminal as a screen: drawn on apart from what was there before, with keys read one by one.
//!
//! Left again in every way that destructors run, and on SIGINT, SIGTERM and SIGHUP too: they are
//! blocked, and read like keys.

use crate::serve::signals::Signals;
use crate::show::report::live::Screen;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::time::Duration;

/// The other screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Back.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the first line; what is drawn goes over what was there, so nothing flickers.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line, and of the screen.
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

/// The terminal, taken over until this is dropped.
pub(crate) struct Terminal {
    before: libc::termios,
    /// Readable when a signal has come.
    signals: std::os::fd::OwnedFd,
}

impl Terminal {
    /// Takes the terminal over; `None` when standard input is none.
    pub(crate) fn take() -> io::Result<Option<Self>> {
        let mut found = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: `found` has room for the answer.
        if unsafe { libc::tcgetattr(libc::STDIN_FILENO, found.as_mut_ptr()) } != 0 {
            return Ok(None);
        }
        // SAFETY: the call succeeded, so it has filled `found` in.
        let before = unsafe { found.assume_init() };
        let signals = Signals::block()?.readable()?;
        let mut raw = before;
        raw.c_lflag &= !(libc::ICANON | libc::ECHO);
        set(&raw)?;
        let terminal = Self { before, signals };
        write(ENTER)?;
        Ok(Some(terminal))
    }

    /// Its size; 80 by 24 where it does not say.
    pub(crate) fn screen(&self) -> Screen {
        let mut size = libc::winsize {
            ws_row: 0,
            ws_col: 0,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: `size` has room for the answer. A failure leaves zeros.
        unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
        let or = |said: u16, usual: usize| if said == 0 { usual } else { said.into() };
        Screen {
            columns: or(size.ws_col, 80),
            lines: or(size.ws_row, 24),
        }
    }

    /// Shows `page`, which fits.
    pub(crate) fn draw(&self, page: &str) -> io::Result<()> {
        let lines: Vec<&str> = page.lines().collect();
        let page = lines.join(&format!("{REST_OF_LINE}\r\n"));
        write(&format!("{HOME}{page}{REST_OF_LINE}{REST_OF_SCREEN}"))
    }

    /// Waits; true when the reader wants to leave (q, Ctrl-C, a signal, the end of its input).
    pub(crate) fn wants_to_leave(&self, wait: Duration) -> io::Result<bool> {
        use std::os::fd::AsRawFd;
        let polled = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut both = [polled(libc::STDIN_FILENO), polled(self.signals.as_raw_fd())];
        let wait = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: two elements, as said; they outlive the call.
        let ready = unsafe { libc::poll(both.as_mut_ptr(), 2, wait) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                // A change of the window's size, say: draw again.
                io::ErrorKind::Interrupted => Ok(false),
                _ => Err(error),
            };
        }
        if both[1].revents != 0 {
            return Ok(true);
        }
        if both[0].revents == 0 {
            return Ok(false);
        }
        let mut keys = [0_u8; 16];
        // SAFETY: `keys` has as many bytes as said.
        let read = unsafe { libc::read(libc::STDIN_FILENO, keys.as_mut_ptr().cast(), keys.len()) };
        let read = usize::try_from(read).unwrap_or(0);
        Ok(read == 0
            || keys[..read]
                .iter()
                .any(|key| matches!(key, b'q' | b'Q' | 3)))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _gone = write(LEAVE);
        let _gone = set(&self.before);
    }
}

fn set(to: &libc::termios) -> io::Result<()> {
    // SAFETY: `to` is a whole `termios`.
    match unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, to) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
