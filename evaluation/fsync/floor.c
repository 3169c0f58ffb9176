// What a sync costs without a tier: group commit made of bare requests, beside a plain file.
//
//   cc -O2 -pthread -o floor evaluation/fsync/floor.c -luring
//   ./floor DIRECTORY THREADS PAGES SECONDS ROUNDS
//
// Each of THREADS threads writes PAGES pages of 8 KiB at random places of a file of 64 MiB and makes
// them durable, again and again. The ways take turns, SECONDS each, ROUNDS times (400 at most):
//   plain     pwrite through the page cache, then fdatasync
//   own       direct writes of the pages and of a 4-KiB journal block at once, then fdatasync
//   direct    group commit: whoever finds no commit under way writes the pages of all who wait and
//             one journal block at once, then calls fdatasync itself
//   ring      the same, but the fdatasync is a request of its io_uring, which a thread of the kernel
//             makes: what the tier does, so that a device that hangs can be left
//   helper    the same, but the fdatasync is another thread's
//   direct+, ring+, helper+   the same three; the next commit writes while this one is synced
// Printed: median and quartile of the rounds' median time of pages and sync, us; ratio to plain,
// median and range; syncs a second; commits a sync.
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 8192, PAGES = 8192, BLOCK = 4096, BLOCKS = 256, BUFFER = 1 << 20, AT_ONCE = 100, MOST = 200000 };
enum way { PLAIN, OWN, DIRECT, RING, HELPER, DIRECT_NEXT, RING_NEXT, HELPER_NEXT, WAYS };
static const char *NAMES[WAYS] = {"plain", "own", "direct", "ring", "helper", "direct+", "ring+", "helper+"};

static int plain_file, direct_file, synced_file, threads, pages;
static enum way way;
static double until;

// A thread's own.
struct helper { uint32_t asked, done; int stop; pthread_t thread; };
static __thread struct io_uring ring;
static __thread char *buffer;
static __thread uint64_t seed;
static __thread struct helper *helper;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
static void must(int holds, const char *what) {
    if (!holds) { perror(what); exit(1); }
}
static uint64_t place(void) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (seed >> 33) % PAGES * PAGE;
}
static uint64_t journal(void) {
    static uint64_t next;
    return (uint64_t)PAGES * PAGE + __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % BLOCKS * BLOCK;
}

static void put(uint64_t offset, int length, int from) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
    io_uring_prep_write_fixed(entry, direct_file, buffer + from, length, offset, 0);
}
static void finish(int count) {
    struct io_uring_cqe *done;
    io_uring_submit_and_wait(&ring, count);
    for (int i = 0; i < count; i++) {
        must(!io_uring_wait_cqe(&ring, &done) && done->res >= 0, "request");
        io_uring_cqe_seen(&ring, done);
    }
}
static void write_all(const uint64_t *places, int count) {
    for (int i = 0, first = 1; i < count || first; first = 0) {
        int some = count - i < AT_ONCE ? count - i : AT_ONCE;
        for (int k = 0; k < some; k++) put(places[i + k], PAGE, k * PAGE);
        if (first) put(journal(), BLOCK, 0);
        finish(some + first);
        i += some;
    }
}

static void wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0); }
static void await(uint32_t *word, uint32_t old) { syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, 0, 0, 0); }
static uint32_t load(uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static void *help(void *of) {
    struct helper *h = of;
    for (uint32_t seen = 0;;) {
        while (load(&h->asked) == seen) await(&h->asked, seen);
        seen = load(&h->asked);
        if (__atomic_load_n(&h->stop, __ATOMIC_ACQUIRE)) return 0;
        must(!fdatasync(synced_file), "fdatasync");
        __atomic_store_n(&h->done, seen, __ATOMIC_RELEASE);
        wake(&h->done);
    }
}
static void ask_helper(void) {
    if (!helper) {
        must(!!(helper = calloc(1, sizeof *helper)), "memory");
        must(!pthread_create(&helper->thread, 0, help, helper), "thread");
    }
    uint32_t before, number = helper->asked + 1;
    __atomic_store_n(&helper->asked, number, __ATOMIC_RELEASE);
    wake(&helper->asked);
    while ((before = load(&helper->done)) != number) await(&helper->done, before);
}
static void end_helper(void) {
    if (!helper) return;
    __atomic_store_n(&helper->stop, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&helper->asked, helper->asked + 1, __ATOMIC_RELEASE);
    wake(&helper->asked);
    pthread_join(helper->thread, 0);
    free(helper);
    helper = 0;
}
static void make_durable(enum way how) {
    if (how == RING || how == RING_NEXT) {
        io_uring_prep_fsync(io_uring_get_sqe(&ring), synced_file, IORING_FSYNC_DATASYNC);
        finish(1);
    } else if (how == HELPER || how == HELPER_NEXT) {
        ask_helper();
    } else {
        must(!fdatasync(synced_file), "fdatasync");
    }
}

// Group commit. Commit n is waited for at ended[n % 4].
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ends[4] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};
static uint64_t begun, ended, commits, staged[4096];
static int writing, under_way, count;

static void group(void) {
    int at_once = way >= DIRECT_NEXT ? 2 : 1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < pages; i++) staged[count++] = place();
    uint64_t target = begun + 1;
    while (ended < target) {
        if (writing || under_way >= at_once || begun >= target) {
            pthread_cond_wait(&ends[target % 4], &lock);
            continue;
        }
        uint64_t mine = ++begun, places[4096];
        int taken = count;
        memcpy(places, staged, taken * sizeof *places);
        count = 0, writing = 1, under_way++;
        pthread_mutex_unlock(&lock);
        write_all(places, taken);
        pthread_mutex_lock(&lock);
        writing = 0;
        if (at_once > 1) pthread_cond_signal(&ends[(mine + 1) % 4]);
        pthread_mutex_unlock(&lock);
        make_durable(way);
        pthread_mutex_lock(&lock);
        under_way--, commits++;
        if (ended < mine) ended = mine;
        pthread_cond_signal(&ends[(mine + 1) % 4]);
        pthread_cond_broadcast(&ends[mine % 4]);
        if (at_once > 1) pthread_cond_signal(&ends[(mine + 2) % 4]);
    }
    pthread_mutex_unlock(&lock);
}
static void once(void) {
    uint64_t places[4096];
    if (way == PLAIN) {
        for (int i = 0; i < pages; i++) must(pwrite(plain_file, buffer, PAGE, place()) == PAGE, "write");
        must(!fdatasync(plain_file), "fdatasync");
    } else if (way == OWN) {
        for (int i = 0; i < pages; i++) places[i] = place();
        write_all(places, pages);
        make_durable(way);
    } else {
        group();
    }
}

static double *times[64];
static int made[64];
static void *client(void *argument) {
    long id = (long)argument;
    seed = id * 977 + (uint64_t)now();
    must(!posix_memalign((void **)&buffer, BLOCK, BUFFER), "memory");
    memset(buffer, 7, BUFFER);
    must(!io_uring_queue_init(128, &ring, IORING_SETUP_SINGLE_ISSUER), "io_uring");
    struct iovec whole = {buffer, BUFFER};
    must(!io_uring_register_buffers(&ring, &whole, 1), "buffers");
    int n = 0;
    for (double began; (began = now()) < until && n < MOST; n++) {
        once();
        times[id][n] = now() - began;
    }
    made[id] = n;
    end_helper();
    io_uring_queue_exit(&ring);
    free(buffer);
    return 0;
}

static int order(const void *a, const void *b) {
    double x = *(double *)a, y = *(double *)b;
    return (x > y) - (x < y);
}
static int prepare(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    must(file >= 0, path);
    char *bytes = calloc(1, BUFFER);
    for (size_t at = 0; at < (size_t)PAGES * PAGE + BLOCKS * BLOCK; at += BUFFER) must(pwrite(file, bytes, BUFFER, at) == BUFFER, path);
    free(bytes);
    must(!fsync(file), path);
    return file;
}
int main(int n, char **argument) {
    must(n == 6, "DIRECTORY THREADS PAGES SECONDS ROUNDS");
    char path[4096];
    snprintf(path, sizeof path, "%s/direct", argument[1]);
    plain_file = prepare(argument[1], "plain");
    synced_file = prepare(argument[1], "direct");
    must((direct_file = open(path, O_RDWR | O_DIRECT)) >= 0, path);
    threads = atoi(argument[2]), pages = atoi(argument[3]);
    double time = atof(argument[4]) * 1e6;
    int rounds = atoi(argument[5]);
    must(threads > 0 && threads <= 64 && pages * threads <= 4096 && rounds > 0 && rounds <= 400, "arguments");
    static double middle[WAYS][400], rate[WAYS][400], share[WAYS][400];
    for (int i = 0; i < threads; i++) must(!!(times[i] = malloc(MOST * sizeof(double))), "memory");
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < WAYS; turn++) {
            way = (turn + round) % WAYS;
            begun = ended = commits = count = writing = under_way = 0;
            until = now() + time;
            pthread_t all[64];
            for (long i = 0; i < threads; i++) must(!pthread_create(&all[i], 0, client, (void *)i), "thread");
            int sum = 0;
            for (int i = 0; i < threads; i++) pthread_join(all[i], 0), sum += made[i];
            double *every = malloc((sum + 1) * sizeof(double));
            sum = 0;
            for (int i = 0; i < threads; i++) memcpy(every + sum, times[i], made[i] * sizeof(double)), sum += made[i];
            qsort(every, sum, sizeof *every, order);
            middle[way][round] = every[sum / 2], rate[way][round] = sum / (time / 1e6), share[way][round] = (double)commits / sum;
            free(every);
        }
    }
    for (int w = WAYS - 1; w >= 0; w--) {
        // From the last way on: plain, which all are set against, is sorted last.
        static char lines[WAYS][200];
        double ratio[400], of_rate[400];
        for (int r = 0; r < rounds; r++) ratio[r] = middle[w][r] / middle[PLAIN][r], of_rate[r] = rate[w][r] / rate[PLAIN][r];
        double *sorted[] = {ratio, of_rate, middle[w], rate[w], share[w]};
        for (int i = 0; i < 5; i++) qsort(sorted[i], rounds, sizeof(double), order);
        int half = rounds / 2, quarter = rounds / 4;
        snprintf(lines[w], sizeof lines[w], "%-8s %8.1f %8.1f | %5.2fx %.2f-%.2f | %7.0f %5.2fx | %.3f", NAMES[w], middle[w][half], middle[w][quarter], ratio[half], ratio[0], ratio[rounds - 1], rate[w][half], of_rate[half], share[w][half]);
        if (w == 0) for (int k = 0; k < WAYS; k++) puts(lines[k]);
    }
}
