/* Lets a server initialise Python before it forks its sessions; LD_PRELOAD loads this into the server.

   PL/Python initialises Python in each session. Where shared_preload_libraries names it, Python is in the server's
   memory when the server forks for the first time, and is initialised there. Sessions then have what sitecustomize.py
   imported. Other programs, in which there is no Python, fork as ever.

   Importing takes seconds, so servers themselves fork from a process that has imported once: where PARENT is set, it
   names the library of PL/Python, and Python is initialised before the server's main program begins. sitecustomize.py
   returns in each process that is to become a server.

   Most sessions call no Python. Python hears that it was forked only when PL/Python announces its module: what it does
   then writes to many pages, of each of which the kernel makes a copy. And Python's objects lie side by side, so that
   sitecustomize.py can have their pages joined: a fork copies the table of all pages.

   It also has disks fill up where nobody may mount a small one: what writes to a file under a folder .../easeml-full-*
   finds no space while that folder has a file called filler (tests/disks.py). */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define PARENT "EASEML_TEST_PARENT"
#define ARENA (1 << 20) /* what Python asks for at a time for its objects */
#define ARENAS 16       /* and how many of them lie side by side */

typedef struct _object PyObject;
typedef int (*Main)(int, char **, char **);

static pid_t server; /* the process that has asked for Python */
static int is_initialised;
static int is_announced; /* whether PL/Python has announced its module to the server itself */

static void *find(const char *name) { return dlsym(RTLD_DEFAULT, name); }

static void call(const char *name) { ((void (*)(void))find(name))(); }

/* The destructors of libraries would write to most pages of the server's memory: the kernel would copy each. */
static void end_at_once(int status, void *nothing)
{
    (void)nothing;
    fflush(NULL);
    _exit(status);
}

pid_t fork(void)
{
    pid_t child, (*next)(void) = (pid_t (*)(void))dlsym(RTLD_NEXT, "fork");

    if (!server) {
        server = getpid();
        if (find("Py_Initialize")) {
            call("Py_Initialize");
            is_initialised = 1;
        }
    }
    if (!is_initialised || getpid() != server)
        return next();
    child = next();
    if (!child) {
        if (is_announced)
            call("PyOS_AfterFork_Child");
        on_exit(end_at_once, NULL);
    }
    return child;
}

/* As PyObject_SetArenaAllocator takes it. */
typedef struct {
    void *context;
    void *(*take)(void *, size_t);
    void (*give_back)(void *, void *, size_t);
} Allocator;

static void *pages(size_t size)
{
    void *taken = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return taken == MAP_FAILED ? NULL : taken;
}

static void *take(void *context, size_t size)
{
    static char *free_arenas;
    static int n_free;

    (void)context;
    if (size != ARENA)
        return pages(size);
    if (!n_free && (free_arenas = pages((size_t)ARENAS * ARENA)))
        n_free = ARENAS;
    return n_free ? free_arenas + (size_t)--n_free * ARENA : NULL;
}

static void give_back(void *context, void *taken, size_t size)
{
    (void)context;
    munmap(taken, size);
}

static Main program;

static int prepared(int count, char **arguments, char **environment)
{
    const char *library = getenv(PARENT);
    Allocator arenas = {NULL, take, give_back};

    if (library) {
        if (!dlopen(library, RTLD_NOW | RTLD_GLOBAL)) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        server = getpid(); /* until Python is initialised, forks are as ever */
        ((void (*)(Allocator *))find("PyObject_SetArenaAllocator"))(&arenas);
        call("Py_Initialize");
        server = getpid(); /* now that of a server */
        is_initialised = 1;
    }
    return program(count, arguments, environ);
}

int __libc_start_main(Main main, int count, char **arguments, Main begin, void (*end)(void), void (*loaded)(void),
                      void *stack)
{
    int (*next)(Main, int, char **, Main, void (*)(void), void (*)(void), void *);

    next = (int (*)(Main, int, char **, Main, void (*)(void), void (*)(void), void *))dlsym(RTLD_NEXT, "__libc_start_main");
    program = main;
    return next(prepared, count, arguments, begin, end, loaded, stack);
}

/* PL/Python announces its module with this, which comes too late for a Python that is initialised. */
int PyImport_AppendInittab(const char *name, PyObject *(*initialise)(void))
{
    PyObject *module, *(*modules)(void) = (PyObject *(*)(void))find("PyImport_GetModuleDict");
    int (*set)(PyObject *, const char *, PyObject *) = (int (*)(PyObject *, const char *, PyObject *))find("PyDict_SetItemString");
    int (*next)(const char *, PyObject *(*)(void)) = (int (*)(const char *, PyObject *(*)(void)))dlsym(RTLD_NEXT, "PyImport_AppendInittab");

    if (!is_initialised)
        return next(name, initialise);
    if (getpid() == server)
        is_announced = 1;
    else if (!is_announced)
        call("PyOS_AfterFork_Child");
    module = initialise();
    return module ? set(modules(), name, module) : -1;
}

static int is_full(int file)
{
    char link[64], path[4096], *end;
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    length = readlink(link, path, sizeof path - 16);
    if (length < 0)
        return 0;
    path[length] = 0;
    end = strstr(path, "/easeml-full-");
    if (!end || !(end = strchr(end + 1, '/')))
        return 0;
    strcpy(end, "/filler");
    return access(path, F_OK) == 0;
}

#define WRITES(name, buffer, size)                                                                                     \
    ssize_t name(int file, buffer data, size n, off64_t at)                                                            \
    {                                                                                                                  \
        static ssize_t (*next)(int, buffer, size, off64_t);                                                            \
                                                                                                                       \
        if (!next)                                                                                                     \
            next = (ssize_t (*)(int, buffer, size, off64_t))dlsym(RTLD_NEXT, #name);                                   \
        if (is_full(file)) {                                                                                           \
            errno = ENOSPC;                                                                                            \
            return -1;                                                                                                 \
        }                                                                                                              \
        return next(file, data, n, at);                                                                                \
    }

WRITES(pwrite, const void *, size_t)
WRITES(pwrite64, const void *, size_t)
WRITES(pwritev, const struct iovec *, int)
WRITES(pwritev64, const struct iovec *, int)

int posix_fallocate64(int file, off64_t at, off64_t length)
{
    static int (*next)(int, off64_t, off64_t);

    if (!next)
        next = (int (*)(int, off64_t, off64_t))dlsym(RTLD_NEXT, "posix_fallocate64");
    return is_full(file) ? ENOSPC : next(file, at, length);
}
