//! One configuration's run: a copy of the database, an engine, the same transactions.

use super::clock::{Base, Clock, Meter, Metered};
use super::outcome::{Outcome, PageRead, Reads, Sample};
use super::tpcc::{Client, MIX, Scale};
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thermocline::device::{Device, FileDevice, FileOptions, ShapedDisk};
use thermocline::{BaseIdentity, Engine, EngineConfig, Store, StoreOptions};
use thermocline_core::hint::FileKind;
use thermocline_core::model::Model;
use thermocline_sqlite::{BaseFile, Registration};
use thermocline_trace::{Op, Recorder, RecorderOptions, Served, TraceReader};

/// Points on the curves, warm-up included.
const SAMPLES: u64 = 60;
/// Transactions between looks at the wall clock.
const LOOK_EVERY: u64 = 32;

/// What all runs have in common.
pub(crate) struct Plan {
    /// Where the files are.
    pub(crate) directory: PathBuf,
    /// The loaded database.
    pub(crate) template: PathBuf,
    pub(crate) scale: Scale,
    pub(crate) seed: u64,
    pub(crate) page_size: u32,
    pub(crate) flash_bytes: u64,
    /// Pages of a region of TAC.
    pub(crate) region_pages: u32,
    /// DRAM pool under SQLite.
    pub(crate) pool_bytes: u64,
    /// SQLite's own page cache.
    pub(crate) cache_bytes: u64,
    /// Pages in the write-ahead log before they are copied to the database.
    pub(crate) checkpoint_pages: u32,
    pub(crate) warm_up: u64,
    pub(crate) transactions: u64,
    /// Wall-clock time a run may take.
    pub(crate) limit: Duration,
    /// Wait for the emulated disk instead of adding its time up.
    pub(crate) real_time: bool,
}

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    /// The database on the emulated disk.
    HardDisk,
    /// The same, with a flash tier under this policy.
    Tier(String),
    /// The database on the fast device.
    AllSsd,
}

impl Setup {
    /// Short name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::HardDisk => "hdd",
            Self::Tier(policy) => policy,
            Self::AllSsd => "ssd",
        }
    }

    fn words(&self) -> String {
        match self {
            Self::HardDisk => "hard disk only".to_owned(),
            Self::Tier(policy) => format!("hard disk + flash, {}", policy.to_uppercase()),
            Self::AllSsd => "all on SSD".to_owned(),
        }
    }
}

/// A run's open parts. Fields are dropped in order: the connection first.
struct Session {
    db: Connection,
    _vfs: Registration,
    engine: Arc<Engine>,
    clock: Clock,
    flash: Arc<Meter>,
    recorder: Recorder,
    trace: PathBuf,
    labels: [String; 2],
}

/// Runs `setup`; `progress` counts transactions.
pub(crate) fn run(plan: &Plan, setup: &Setup, progress: &ProgressBar) -> Result<Outcome> {
    let session = Session::open(plan, setup)?;
    let mut client = Client::new(&session.db, plan.scale, plan.seed)?;
    let course = session.drive(plan, &mut client, progress)?;
    let kinds = MIX
        .iter()
        .zip(client.done())
        .map(|(&(kind, _), &count)| (kind, count))
        .collect();
    drop(client);
    let labels = session.labels.clone();
    let page_reads = session.close(&course, plan)?;
    Ok(Outcome {
        kinds,
        ..course.outcome(setup, labels, page_reads)
    })
}

impl Session {
    fn open(plan: &Plan, setup: &Setup) -> Result<Self> {
        let path = plan.directory.join("demo.db");
        std::fs::copy(&plan.template, &path).context("cannot copy the database")?;
        let base = match setup {
            Setup::AllSsd => Base::Real,
            _ => emulated(plan.real_time)?,
        };
        let (base_meter, flash) = (Arc::new(Meter::default()), Arc::new(Meter::default()));
        let store = match setup {
            Setup::Tier(_) => Some(flash_store(plan, &flash)?),
            Setup::HardDisk | Setup::AllSsd => None,
        };
        let base_label = base_device(&base, &path, &base_meter)?.label();
        let flash_label = store.as_ref().map_or_else(String::new, Store::label);
        let engine = Engine::start(config(plan, setup), store)?;
        let clock = Clock::start(&base, Arc::clone(&base_meter));
        let trace = plan.directory.join("demo.trace");
        let options = RecorderOptions {
            page_size: plan.page_size,
            overwrite: true,
            ..RecorderOptions::default()
        };
        let recorder = Recorder::create(&trace, options)?;
        engine.set_recorder(Some(recorder.clone()));
        let vfs = thermocline_sqlite::register(
            &format!("thermocline-demo-{}", setup.name()),
            Arc::clone(&engine),
            Box::new(move |file| open_base(file, &base, &base_meter)),
        )?;
        let db = connect(plan, &path, vfs.name())?;
        let labels = [base_label, flash_label];
        Ok(Self {
            db,
            _vfs: vfs,
            engine,
            clock,
            flash,
            recorder,
            trace,
            labels,
        })
    }

    /// Runs warm-up and measurement.
    fn drive(&self, plan: &Plan, client: &mut Client<'_>, bar: &ProgressBar) -> Result<Course> {
        let total = plan.warm_up + plan.transactions;
        let every = (total / SAMPLES).max(1);
        let mut course = Course::new(self.mark(0));
        for done in 1..=total {
            let before = self.clock.base().time();
            client.transact().context("a transaction failed")?;
            self.let_writers_work(self.clock.base().time() - before);
            course.times.push((
                self.clock.wall().as_secs_f64(),
                self.clock.now().as_secs_f64(),
            ));
            let late = done.is_multiple_of(LOOK_EVERY) && self.clock.wall() > plan.limit;
            if done.is_multiple_of(every) {
                course.samples.push(self.mark(done).sample);
                bar.set_position(done);
            }
            if done == plan.warm_up {
                course.begin = self.mark(done);
            }
            if done == total || late {
                course.end = self.mark(done);
            }
            if late {
                course.cut_short = done < total;
                break;
            }
        }
        course.wall = self.clock.wall().as_secs_f64();
        Ok(course)
    }

    /// While a disk is waited for, the tier's writers empty their buffer. Where the disk's time
    /// is only added up they get real time instead, at most as much, which the clock leaves out.
    fn let_writers_work(&self, disk: Duration) {
        const PAUSE: Duration = Duration::from_micros(100);
        if self.clock.waits() || self.labels[1].is_empty() {
            return;
        }
        let staged = || self.engine.stats().tier.map_or(0, |tier| tier.staged);
        let start = Instant::now();
        while start.elapsed() < disk && staged() > 0 {
            std::thread::sleep(PAUSE);
        }
        self.clock.leave_out(start.elapsed());
    }

    fn mark(&self, transactions: u64) -> Mark {
        let stats = self.engine.stats();
        let count = |source: &str| stats.page_reads.get(source).copied().unwrap_or(0);
        let (pool, base) = (count("pool"), count("base"));
        let reads = Reads {
            pool,
            flash: count("flash") + count("buffer"),
            base,
        };
        Mark {
            sample: Sample {
                transactions,
                seconds: self.clock.now().as_secs_f64(),
                reads,
            },
            base_reads: self.clock.base().reads(),
            base_writes: self.clock.base().writes(),
            flash_time: self.flash.time(),
        }
    }

    /// Closes everything and reads the trace back.
    fn close(self, course: &Course, plan: &Plan) -> Result<Vec<PageRead>> {
        let Self {
            db,
            engine,
            recorder,
            trace,
            ..
        } = self;
        engine.set_recorder(None);
        recorder.finish()?;
        db.close().map_err(|(_, error)| error)?;
        engine.stop()?;
        page_reads(&trace, course, plan.page_size)
    }
}

/// The state at one moment.
#[derive(Clone, Copy)]
struct Mark {
    sample: Sample,
    base_reads: Duration,
    base_writes: Duration,
    flash_time: Duration,
}

/// What a run went through.
struct Course {
    samples: Vec<Sample>,
    /// Wall-clock and run time at the end of every transaction.
    times: Vec<(f64, f64)>,
    begin: Mark,
    end: Mark,
    wall: f64,
    cut_short: bool,
}

impl Course {
    fn new(start: Mark) -> Self {
        let samples = vec![start.sample];
        Self {
            samples,
            times: vec![],
            begin: start,
            end: start,
            wall: 0.0,
            cut_short: false,
        }
    }

    /// The run's time at a wall-clock time.
    fn run_time(&self, wall: f64) -> f64 {
        let after = self.times.partition_point(|&(at, _)| at <= wall);
        let before = after.checked_sub(1).map_or((0.0, 0.0), |at| self.times[at]);
        let Some(&next) = self.times.get(after) else {
            return before.1;
        };
        let share = (wall - before.0) / (next.0 - before.0).max(1e-9);
        before.1 + share * (next.1 - before.1)
    }

    fn outcome(self, setup: &Setup, labels: [String; 2], page_reads: Vec<PageRead>) -> Outcome {
        let (begin, end) = (&self.begin, &self.end);
        let transactions = end.sample.transactions - begin.sample.transactions;
        let seconds = end.sample.seconds - begin.sample.seconds;
        let each = |time: Duration| time.as_secs_f64() * 1e3 / transactions.max(1) as f64;
        let reads = end.sample.reads.since(&begin.sample.reads);
        let [base, flash] = labels;
        Outcome {
            name: setup.name().to_owned(),
            configuration: setup.words(),
            base,
            flash,
            warm_up_transactions: begin.sample.transactions,
            transactions,
            seconds,
            wall_seconds: self.wall,
            transactions_per_second: transactions as f64 / seconds.max(1e-9),
            reads,
            flash_hit_ratio: reads.flash_hit_ratio(),
            base_read_ms_per_transaction: each(end.base_reads - begin.base_reads),
            base_write_ms_per_transaction: each(end.base_writes - begin.base_writes),
            flash_ms_per_transaction: each(end.flash_time - begin.flash_time),
            speed_up: None,
            cut_short: self.cut_short,
            kinds: BTreeMap::new(),
            samples: self.samples,
            page_reads,
        }
    }
}

/// A disk of the TAC paper's kind (§4.1), otherwise empty: seeks are as short as they can be.
fn emulated(real_time: bool) -> Result<Base> {
    let model = Model::preset("hdd").context("no disk model")?;
    let capacity = model.capacity();
    Ok(match real_time {
        true => Base::RealTime(ShapedDisk::new(model, capacity)),
        false => Base::Accounted(ShapedDisk::accounting(model, capacity)),
    })
}

fn config(plan: &Plan, setup: &Setup) -> EngineConfig {
    let mut config = EngineConfig {
        page_size: plan.page_size,
        pool_bytes: plan.pool_bytes,
        ..EngineConfig::default()
    };
    config.tac.region_pages = plan.region_pages;
    if let Setup::Tier(policy) = setup {
        config.policy.clone_from(policy);
    }
    config
}

fn flash_store(plan: &Plan, meter: &Arc<Meter>) -> Result<Store> {
    let options = StoreOptions {
        page_size: plan.page_size,
        size: Some(plan.flash_bytes),
        base: BaseIdentity {
            file_system: 0,
            inode: 0,
            path: String::new(),
            ..BaseIdentity::default()
        },
        format: true,
        deadline: None,
        ..StoreOptions::default()
    };
    let store = Store::open(&plan.directory.join("flash"), &options)?;
    Ok(store.wrapped(|device| Arc::new(Metered::real(device, meter))))
}

/// The database is on base; log and temporary files are on the fast device in every run.
fn open_base(file: &BaseFile<'_>, base: &Base, meter: &Arc<Meter>) -> io::Result<Arc<dyn Device>> {
    match file.kind {
        FileKind::Relation => base_device(base, file.path, meter),
        _ => {
            let options = FileOptions {
                direct: false,
                ..FileOptions::default()
            };
            Ok(Arc::new(FileDevice::open(file.path, options)?))
        }
    }
}

fn base_device(base: &Base, path: &Path, meter: &Arc<Meter>) -> io::Result<Arc<dyn Device>> {
    let direct = matches!(base, Base::Real);
    let file = FileDevice::open(
        path,
        FileOptions {
            direct,
            ..FileOptions::default()
        },
    )?;
    Ok(match base {
        Base::Real => Arc::new(Metered::real(file, meter)),
        Base::Accounted(disk) | Base::RealTime(disk) => {
            Arc::new(Metered::emulated(file, disk, meter))
        }
    })
}

fn connect(plan: &Plan, path: &Path, vfs: &str) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags_and_vfs(path, flags, vfs)?;
    let cache = (plan.cache_bytes / 1024).max(1);
    let checkpoint = plan.checkpoint_pages;
    db.execute_batch(&format!(
        "PRAGMA locking_mode=exclusive; PRAGMA journal_mode=wal; PRAGMA synchronous=normal; \
         PRAGMA wal_autocheckpoint={checkpoint}; PRAGMA cache_size=-{cache}; \
         PRAGMA temp_store=memory"
    ))?;
    Ok(db)
}

/// The reads of whole pages of the database that DRAM did not serve, from the trace.
fn page_reads(trace: &Path, course: &Course, page_size: u32) -> Result<Vec<PageRead>> {
    let page_size = u64::from(page_size);
    let mut reads = vec![];
    for record in TraceReader::open(trace)? {
        let record = record?;
        let below = matches!(record.served, Served::Flash | Served::Buffer | Served::Base);
        let page = record.op == Op::Read && record.length == page_size;
        if page && below && record.hints.file_kind() == FileKind::Relation {
            reads.push(PageRead {
                seconds: course.run_time(record.time_ns as f64 / 1e9),
                page: record.offset / page_size,
                flash: record.served != Served::Base,
            });
        }
    }
    Ok(reads)
}
