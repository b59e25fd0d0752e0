/* Lets a server initialise Python before it forks its sessions; LD_PRELOAD loads this into the server.

   PL/Python initialises Python in each session. Where shared_preload_libraries names it, Python is in the server's
   memory when the server forks for the first time, and is initialised there. Sessions then have what sitecustomize.py
   imported. Other programs, in which there is no Python, fork as ever. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct _object PyObject;

static pid_t server; /* the process that has asked for Python */
static int is_initialised;

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
    call("PyOS_BeforeFork");
    child = next();
    if (child) {
        call("PyOS_AfterFork_Parent");
    } else {
        call("PyOS_AfterFork_Child");
        on_exit(end_at_once, NULL);
    }
    return child;
}

/* PL/Python announces its module with this, which comes too late for a Python that is initialised. */
int PyImport_AppendInittab(const char *name, PyObject *(*initialise)(void))
{
    PyObject *module, *(*modules)(void) = (PyObject *(*)(void))find("PyImport_GetModuleDict");
    int (*set)(PyObject *, const char *, PyObject *) = (int (*)(PyObject *, const char *, PyObject *))find("PyDict_SetItemString");
    int (*next)(const char *, PyObject *(*)(void)) = (int (*)(const char *, PyObject *(*)(void)))dlsym(RTLD_NEXT, "PyImport_AppendInittab");

    if (!is_initialised)
        return next(name, initialise);
    module = initialise();
    return module ? set(modules(), name, module) : -1;
}
