/*
 * What running statements will read, told to the Thermocline mount below the data directory.
 *
 * When a statement starts, its plan is walked once: every table and index in it has an entry
 * (relfilenode, level, sequential or random, temporary, operator) by hStorage-DB section 4.2.
 * The entries of all statements that this backend has open, merged, are in the backend's slot of
 * a file that the mount reads. The mount believes nothing it finds there; entries are advice.
 *
 * States of a backend's slot: unclaimed (pid 0), idle (no entries), publishing. claim() takes the
 * slot before the first statement; begin() and forget() move between idle and publishing.
 * 1. A slot is written by its backend alone, between an addition to `started` and the same
 *    addition to `finished`. A reader that reads upwards and finds both equal has a whole slot.
 * 2. The slot has the entries of exactly the statements in `statements`.
 * 3. No statement outlives its subtransaction's abort or the end of its transaction.
 * 4. A parallel worker has no entries; it names its leader, whose entries are for its reads too.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;

#if PG_VERSION_NUM >= 160000
#define DATABASE(rel) ((rel)->rd_locator.dbOid)
#define NODE(rel) ((rel)->rd_locator.relNumber)
#else
#define DATABASE(rel) ((rel)->rd_node.dbNode)
#define NODE(rel) ((rel)->rd_node.relNode)
#endif

/* The file: this header, then one slot a process (docs/postgresql.md, "The file"). */
#define ENTRIES 40 /* tables and indexes a slot has room for */
#define STATEMENTS 16 /* statements open at once in a backend that are published */
#define SEGMENTS 64 /* parts of one plan with levels of their own */
#define SLOTS_MAX 16384 /* that the mount reads, as in crates/engine/src/classify/plan.rs */
#define LEVEL_NONE 255 /* of what no operator reads at random */
#define LEVEL_MAX 30

enum { SEQUENTIAL = 1, RANDOM = 2, TEMPORARY = 4 };

/* As PlanOperator in crates/core/src/hint.rs. */
enum { SEQ_SCAN = 1, SAMPLE_SCAN, INDEX_SCAN, INDEX_ONLY_SCAN, BITMAP_SCAN, TID_SCAN };

typedef struct Entry {
    uint32 database, node;
    uint8 level; /* lowest of the operators that read it at random */
    uint8 access; /* SEQUENTIAL, RANDOM, TEMPORARY: any of them */
    uint8 operator, unused;
} Entry;

typedef struct Entries {
    uint8 low, high; /* levels of all random operators; low > high where there is none */
    uint8 count, dropped; /* relations, and those there was no room for, at most 255 */
    Entry all[ENTRIES];
} Entries;

typedef struct Slot {
    uint32 finished; /* invariant 1 */
    uint32 pid;
    uint64 start; /* of the process, as /proc says, so that its number alone is no proof */
    uint32 leader; /* of a parallel worker */
    Entries entries;
    uint32 unused;
    uint32 started;
} Slot;

StaticAssertDecl(sizeof(Slot) == 512, "the mount knows the size of a slot");

typedef struct Header {
    char magic[8];
    uint32 slots, slot_bytes;
    char unused[512 - 16];
} Header;

typedef struct Statement {
    QueryDesc *desc;
    SubTransactionId subid;
    Entries entries;
} Statement;

typedef struct Found {
    Relation rel;
    int segment, depth;
    uint8 access, operator;
} Found;

typedef struct Walk {
    PlanState *parent;
    int segment, depth; /* where the walk is: in which segment, how far below its root */
    int segments, deepest[SEGMENTS];
    int count;
    Found found[2 * ENTRIES];
} Walk;

static Header *hints; /* shared by all processes of the server; NULL: nobody listens */
static char root[MAXPGPATH]; /* of the mount */
static Slot *own;
static Statement statements[STATEMENTS];
static int open_statements;
static bool publish = true;

static ExecutorStart_hook_type next_start;
static ExecutorEnd_hook_type next_end;
static shmem_startup_hook_type next_startup;

void _PG_init(void);
PG_FUNCTION_INFO_V1(thermocline_slots);
PG_FUNCTION_INFO_V1(thermocline_mount);

/* ---- The plan ---- */

static void add(Entries *entries, const Entry *entry) {
    for (int i = 0; i < entries->count; i++) {
        Entry *known = &entries->all[i];

        if (known->node != entry->node || known->database != entry->database) continue;
        known->access |= entry->access;
        if (entry->level < known->level) {
            /* Rule 2: where several operators read a table, the lowest level counts. */
            known->level = entry->level;
            known->operator = entry->operator;
        }
        return;
    }
    if (entries->count < ENTRIES)
        entries->all[entries->count++] = *entry;
    else if (entries->dropped < 255)
        entries->dropped++;
}

static void clear(Entries *entries) {
    entries->low = LEVEL_NONE;
    entries->high = entries->count = entries->dropped = 0;
}

static void note(Walk *walk, Relation rel, uint8 access, uint8 operator) {
    if (rel == NULL || walk->count == lengthof(walk->found)) return;
    walk->found[walk->count++] = (Found) {rel, walk->segment, walk->depth, access, operator};
}

static void note_relations(Walk *walk, PlanState *state) {
#define TABLE (((ScanState *) state)->ss_currentRelation)
    switch (nodeTag(state)) {
        case T_SeqScanState:
#if PG_VERSION_NUM >= 140000
        case T_TidRangeScanState:
#endif
            note(walk, TABLE, SEQUENTIAL, SEQ_SCAN);
            break;
        case T_SampleScanState:
            note(walk, TABLE, SEQUENTIAL, SAMPLE_SCAN);
            break;
        case T_TidScanState:
            note(walk, TABLE, RANDOM, TID_SCAN);
            break;
        case T_BitmapHeapScanState:
            note(walk, TABLE, RANDOM, BITMAP_SCAN);
            break;
        case T_BitmapIndexScanState:
            note(walk, ((BitmapIndexScanState *) state)->biss_RelationDesc, RANDOM, BITMAP_SCAN);
            break;
        case T_IndexScanState:
            note(walk, TABLE, RANDOM, INDEX_SCAN);
            note(walk, ((IndexScanState *) state)->iss_RelationDesc, RANDOM, INDEX_SCAN);
            break;
        case T_IndexOnlyScanState:
            note(walk, TABLE, RANDOM, INDEX_ONLY_SCAN);
            note(walk, ((IndexOnlyScanState *) state)->ioss_RelationDesc, RANDOM, INDEX_ONLY_SCAN);
            break;
        default:
            break;
    }
#undef TABLE
}

/* Whether nothing above or beside an operator goes on before it has read all of its input. */
static bool is_blocking(PlanState *state) {
    switch (nodeTag(state)) {
        case T_HashState: case T_SortState: case T_MaterialState:
            return true;
        case T_AggState:
            return ((Agg *) state->plan)->aggstrategy != AGG_SORTED;
        case T_SetOpState:
            return ((SetOp *) state->plan)->strategy == SETOP_HASHED;
        default:
            return false;
    }
}

/* Whether `child` is run to its end before `parent` begins. */
static bool is_init_plan(PlanState *parent, PlanState *child) {
    ListCell *cell;

    if (parent != NULL)
        foreach(cell, parent->initPlan)
            if (((SubPlanState *) lfirst(cell))->planstate == child) return true;
    return false;
}

static void enter_segment(Walk *walk) {
    if (walk->segments == SEGMENTS) return;
    walk->segment = walk->segments++;
    walk->depth = -1;
    walk->deepest[walk->segment] = 0;
}

/*
 * A plan is cut below its blocking operators: each part has levels of its own, counted up from its
 * deepest operator, and a blocking operator is a leaf of the part above it (section 4.2.2).
 */
static bool visit(PlanState *state, void *context) {
    Walk *walk = context;
    PlanState *parent = walk->parent;
    int segment = walk->segment, depth = walk->depth;

    check_stack_depth();
    if (is_init_plan(parent, state)) enter_segment(walk);
    /* The index scans below a bitmap heap scan are one operator with it. */
    if (!IsA(state, BitmapIndexScanState) && !IsA(state, BitmapAndState) &&
        !IsA(state, BitmapOrState))
        walk->depth++;
    walk->deepest[walk->segment] = Max(walk->deepest[walk->segment], walk->depth);
    note_relations(walk, state);
    if (is_blocking(state)) enter_segment(walk);
    walk->parent = state;
    planstate_tree_walker(state, visit, walk);
    walk->parent = parent;
    walk->segment = segment;
    walk->depth = depth;
    return false;
}

static void add_relation(Entries *entries, Relation rel, int level, uint8 access, uint8 operator) {
    Entry entry = {DATABASE(rel), NODE(rel), LEVEL_NONE, access, operator, 0};

    if (access & RANDOM) {
        entry.level = Min(level, LEVEL_MAX);
        entries->low = Min(entries->low, entry.level);
        entries->high = Max(entries->high, entry.level);
    }
    if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP) entry.access |= TEMPORARY;
    add(entries, &entry);
}

/*
 * Rows too long for a page: found by an index, whatever found the row. The lock on the table does
 * not cover its TOAST table, whose index REINDEX CONCURRENTLY may drop at any time, and to look up
 * what is gone is an error. REINDEX waits for whoever has the TOAST table locked. Nobody waits
 * here: what cannot be locked at once is not published.
 */
static void add_toast(Entries *entries, Relation table, int level, uint8 operator) {
    Oid oid = table->rd_rel->reltoastrelid;
    Relation toast;
    List *indexes;
    ListCell *cell;

    if (!ConditionalLockRelationOid(oid, AccessShareLock)) return;
    if ((toast = RelationIdGetRelation(oid)) != NULL) {
        add_relation(entries, toast, level, RANDOM, operator);
        indexes = RelationGetIndexList(toast);
        foreach(cell, indexes) {
            Relation index = RelationIdGetRelation(lfirst_oid(cell));

            if (index == NULL) continue;
            add_relation(entries, index, level, RANDOM, operator);
            RelationClose(index);
        }
        list_free(indexes);
        RelationClose(toast);
    }
    UnlockRelationOid(oid, AccessShareLock);
}

static void plan_entries(PlanState *plan, Entries *entries) {
    Walk walk;

    walk.parent = NULL;
    walk.segments = walk.count = 0;
    enter_segment(&walk);
    visit(plan, &walk);
    clear(entries);
    for (int i = 0; i < walk.count; i++) {
        Found *found = &walk.found[i];
        int level = walk.deepest[found->segment] - found->depth;

        Assert(level >= 0);
        add_relation(entries, found->rel, level, found->access, found->operator);
        if (OidIsValid(found->rel->rd_rel->reltoastrelid))
            add_toast(entries, found->rel, level, found->operator);
    }
}

/* ---- The slot ---- */

/* When this process started, in ticks since the machine did: field 22 of its `stat`. */
static uint64 process_start(void) {
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    char *at;

    if (fd >= 0) close(fd);
    text[Max(len, 0)] = '\0';
    at = strrchr(text, ')'); /* the name in brackets may have anything in it */
    for (int field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

/* Writes the slot anew: invariants 1 and 2. */
static void write_slot(uint32 leader) {
    uint32 number = own->started + 1;
    Entries *entries = &own->entries;

    own->started = number;
    pg_write_barrier();
    own->leader = leader;
    clear(entries);
    for (int i = 0; i < open_statements; i++) {
        Entries *from = &statements[i].entries;

        entries->low = Min(entries->low, from->low);
        entries->high = Max(entries->high, from->high);
        entries->dropped = Min(entries->dropped + from->dropped, 255);
        for (int n = 0; n < from->count; n++)
            add(entries, &from->all[n]);
    }
    pg_write_barrier();
    own->finished = number;
}

/*
 * While the process still has its PGPROC, whose number is the slot's: as soon as that is free,
 * another backend may have the slot (invariant 1).
 */
static void give_back(int code, Datum unused) {
    own->pid = 0;
}

static void claim(void) {
    uint32 at = MyProc - ProcGlobal->allProcs;

    if (at >= hints->slots) return;
    own = (Slot *) (hints + 1) + at;
    own->pid = 0;
    own->start = process_start();
    write_slot(0);
    own->pid = MyProcPid;
    on_shmem_exit(give_back, 0); /* before ProcKill, which was registered earlier */
}

static void begin(QueryDesc *desc) {
    MemoryContext before;

    if (own == NULL) claim();
    if (own == NULL || desc->planstate == NULL || open_statements == STATEMENTS) return;
    if (IsParallelWorker()) {
        if (MyProc->lockGroupLeader != NULL) write_slot(MyProc->lockGroupLeader->pid);
        return; /* invariant 4; the worker runs nothing else until it exits */
    }
    /* The caller's context may outlive the statement: a SQL function's lives as long as the query
     * that calls it for every row. */
    before = MemoryContextSwitchTo(desc->estate->es_query_cxt);
    plan_entries(desc->planstate, &statements[open_statements].entries);
    MemoryContextSwitchTo(before);
    statements[open_statements].desc = desc;
    statements[open_statements].subid = GetCurrentSubTransactionId();
    open_statements++;
    write_slot(0);
}

/* Forgets the statement `desc`, or all that began at or below the subtransaction `from`. */
static void forget(QueryDesc *desc, SubTransactionId from) {
    int kept = 0;

    if (open_statements == 0) return;
    for (int i = 0; i < open_statements; i++) {
        bool goes = desc != NULL ? statements[i].desc == desc : statements[i].subid >= from;

        if (!goes && kept++ != i) statements[kept - 1] = statements[i];
    }
    open_statements = kept;
    write_slot(0);
}

static void on_start(QueryDesc *desc, int flags) {
    (next_start ? next_start : standard_ExecutorStart)(desc, flags);
    if (hints != NULL && publish && !(flags & EXEC_FLAG_EXPLAIN_ONLY)) begin(desc);
}

static void on_end(QueryDesc *desc) {
    forget(desc, 0);
    (next_end ? next_end : standard_ExecutorEnd)(desc);
}

/* Invariant 3: the end of a statement that failed is not told otherwise. */
static void on_transaction(XactEvent event, void *unused) {
    if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT ||
        event == XACT_EVENT_COMMIT || event == XACT_EVENT_PARALLEL_COMMIT)
        forget(NULL, 0);
}

static void on_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent,
                              void *unused) {
    if (event == SUBXACT_EVENT_ABORT_SUB) forget(NULL, mine);
}

/* ---- The file ---- */

/* The first line of `.thermocline/hints` in the data directory or above it: a mount's root. */
static bool find_mount(char *path, int bytes) {
    char name[MAXPGPATH + 32];
    FILE *file = NULL;
    bool found;

    strlcpy(root, DataDir, sizeof root);
    while (strlen(root) > 1) {
        snprintf(name, sizeof name, "%s/.thermocline/hints", root);
        if ((file = fopen(name, "r")) != NULL) break;
        get_parent_directory(root);
    }
    found = file != NULL && fgets(path, bytes, file) != NULL && path[0] == '/';
    if (file != NULL) fclose(file);
    else root[0] = '\0';
    if (found) path[strcspn(path, "\n")] = '\0';
    return found;
}

/* Opens the file; says why not. Only its owner may have to do with it. */
static const char *open_hints(const char *path, size_t bytes) {
    struct stat stat;
    const char *why = NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);

    if (fd < 0) return strerror(errno);
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) || stat.st_uid != geteuid() ||
        stat.st_nlink != 1 || (stat.st_mode & 0077) != 0)
        why = "it is no file of this user's alone";
    else if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        why = "another server on the same mount has it";
    /* With blocks of its own, so that a full file system is told here and not by a signal. */
    else if (ftruncate(fd, 0) != 0 || posix_fallocate(fd, 0, bytes) != 0)
        why = "there is no room for it";
    else if ((hints = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
        hints = NULL;
        why = strerror(errno);
    }
    if (why != NULL) close(fd); /* else it stays open: it has the lock */
    return why;
}

/* In the postmaster, at its start and after the crash of a backend. */
static void on_startup(void) {
    char path[MAXPGPATH];
    uint32 slots = ProcGlobal->allProcCount;
    size_t bytes = sizeof(Header) + (size_t) slots * sizeof(Slot);
    const char *why = "the data directory is on no mount that reads hints";

    if (next_startup) next_startup();
    if (hints != NULL) {
        memset(hints + 1, 0, (size_t) hints->slots * sizeof(Slot));
        return;
    }
    if (find_mount(path, sizeof path))
        why = slots > SLOTS_MAX ? "max_connections is too high for the mount, which reads the "
            "plans of at most 16384 processes" : open_hints(path, bytes);
    if (why != NULL) {
        ereport(LOG, (errmsg("thermocline: plans are not published: %s", why)));
        return;
    }
    hints->slots = slots;
    hints->slot_bytes = sizeof(Slot);
    memcpy(hints->magic, "TCHINTS1", sizeof hints->magic);
    ereport(LOG, (errmsg("thermocline: plans are published in \"%s\"", path)));
}

void _PG_init(void) {
    if (!process_shared_preload_libraries_in_progress) return;
    DefineCustomBoolVariable("thermocline.publish", "Tells the mount what statements will read.",
                             NULL, &publish, true, PGC_USERSET, 0, NULL, NULL, NULL);
    next_startup = shmem_startup_hook, shmem_startup_hook = on_startup;
    next_start = ExecutorStart_hook, ExecutorStart_hook = on_start;
    next_end = ExecutorEnd_hook, ExecutorEnd_hook = on_end;
    RegisterXactCallback(on_transaction, NULL);
    RegisterSubXactCallback(on_subtransaction, NULL);
}

/* ---- SQL: thermocline--1.0.sql makes tables of these ---- */

/* All slots with entries or a leader, as JSON: an array of one object for each entry. */
Datum thermocline_slots(PG_FUNCTION_ARGS) {
    StringInfoData text;
    const char *comma = "";

    initStringInfo(&text);
    for (uint32 i = 0; hints != NULL && i < hints->slots; i++) {
        Slot slot = *((Slot *) (hints + 1) + i);

        if (slot.pid == 0 || slot.started != slot.finished) continue;
        if (slot.leader != 0) {
            appendStringInfo(&text, "%s{\"pid\":%u,\"leader\":%u}", comma, slot.pid, slot.leader);
            comma = ",";
        }
        for (int n = 0; n < Min(slot.entries.count, ENTRIES); n++) {
            Entry *entry = &slot.entries.all[n];

            appendStringInfo(&text, "%s{\"pid\":%u,\"database\":%u,\"filenode\":%u,\"level\":%u,"
                             "\"access\":%u,\"operator\":%u}", comma, slot.pid, entry->database,
                             entry->node, entry->level, entry->access, entry->operator);
            comma = ",";
        }
    }
    PG_RETURN_TEXT_P(cstring_to_text(psprintf("[%s]", text.data)));
}

/* The mount's root; NULL where there is no mount. */
Datum thermocline_mount(PG_FUNCTION_ARGS) {
    if (root[0] == '\0') PG_RETURN_NULL();
    PG_RETURN_TEXT_P(cstring_to_text(root));
}
