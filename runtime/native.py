"""The native part of the runtime as LLVM IR text: thread pool, memory, conversions. `native_ir` writes it for one platform.

Pool protocol. A launch publishes the job, opens `threads - 1` tickets in the high half of @state, and bumps @gen, the word that
idle workers watch. A worker joins by moving one ticket to the count of active workers (low half) in one compare-exchange; only then
does it read the job. The caller works too; when the blocks are taken it withdraws the tickets that are left and waits for the active
workers only, so a worker that wakes late costs nothing. Whoever watches a word spins briefly, then sleeps in the kernel; each
"announce, then check" pair of a sleeper and its waker is sequentially consistent, so no wake-up is lost.
"""

from __future__ import annotations

from string import Template

_MAX_THREADS = 1024
_STACK_BYTES = 8 << 20
_CACHE_SLOTS = 16
_CACHE_MIN = 64 << 10  # smaller blocks: malloc is fast enough
_CACHE_MAX = 256 << 20  # bytes kept in total
_HUGE = 2 << 20

_POOL = """
@gen = internal global i32 0, align 64            ; bumped by each launch; idle workers watch it
@sleepers = internal global i32 0, align 4        ; workers asleep on @gen
@state = internal global i64 0, align 64          ; tickets << 32 | active workers
@caller_asleep = internal global i32 0, align 4   ; the caller sleeps on the low half of @state
@busy = internal global i32 0, align 64           ; a caller has the pool
@started = internal global i64 0, align 8         ; threads created; written by the owner of @busy
@fn = internal global ptr null
@ctx = internal global ptr null
@n = internal global i64 0
@chunk = internal global i64 0
@threads = internal global i64 0
@next = internal global i64 0, align 64           ; first block not yet taken
@error = internal global i64 0, align 64

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)

; Take chunks until none is left or a block reported an error.
define internal void @drain(i64 %worker) nounwind {
entry:
  %fn = load ptr, ptr @fn
  %ctx = load ptr, ptr @ctx
  %n = load i64, ptr @n
  %chunk = load i64, ptr @chunk
  br label %loop
loop:
  %error = load atomic i64, ptr @error monotonic, align 8
  %stop = icmp ne i64 %error, 0
  br i1 %stop, label %done, label %take
take:
  %begin = atomicrmw add ptr @next, i64 %chunk monotonic
  %some = icmp slt i64 %begin, %n
  br i1 %some, label %run, label %done
run:
  %room = sub i64 %n, %begin
  %fits = icmp slt i64 %chunk, %room
  %step = select i1 %fits, i64 %chunk, i64 %room
  %end = add i64 %begin, %step
  %code = call i64 %fn(ptr %ctx, i64 %begin, i64 %end, i64 %worker)
  %ok = icmp eq i64 %code, 0
  br i1 %ok, label %loop, label %failed
failed:
  %set = cmpxchg ptr @error, i64 0, i64 %code monotonic monotonic
  br label %done
done:
  ret void
}

define internal ptr @worker(ptr %unused) nounwind {
entry:
  br label %top
top:
  %seen = load atomic i32, ptr @gen seq_cst, align 4
  br label %look
look:
  %state = load atomic i64, ptr @state acquire, align 8
  %tickets = lshr i64 %state, 32
  %open = icmp ne i64 %tickets, 0
  br i1 %open, label %join, label %spin
join:
  %joined = sub i64 %state, 4294967295  ; one ticket less, one active more
  %pair = cmpxchg ptr @state, i64 %state, i64 %joined acq_rel monotonic
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %work, label %look
work:
  %threads = load i64, ptr @threads
  %id = sub i64 %threads, %tickets
  call void @drain(i64 %id)
  %before = atomicrmw sub ptr @state, i64 1 seq_cst
  %last = icmp eq i64 %before, 1        ; no tickets, no other worker
  br i1 %last, label %tell, label %top
tell:
  %asleep = load atomic i32, ptr @caller_asleep seq_cst, align 4
  %wake = icmp ne i32 %asleep, 0
  br i1 %wake, label %wake_caller, label %top
wake_caller:
  call void @wake(ptr @state, i32 1)
  br label %top
spin:
  %i = phi i32 [ 0, %look ], [ %i1, %pause ]
  %now = load atomic i32, ptr @gen acquire, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %count, label %top
count:
  %i1 = add i32 %i, 1
  %more = icmp slt i32 %i1, $SPINS
  br i1 %more, label %pause, label %sleep
pause:
  $PAUSE
  br label %spin
sleep:
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  call void @wait(ptr @gen, i32 %seen)
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %top
}

; Create threads until `want` exist. Workers block signals, so that the process's handlers run on its own threads; faults stay
; deliverable, for debuggers and fault handlers.
define internal void @grow(i64 %want) nounwind noinline {
entry:
  %attr = alloca [128 x i8], align 16
  %all = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  %thread = alloca i64
  %a0 = call i32 @pthread_attr_init(ptr %attr)
  %a1 = call i32 @pthread_attr_setdetachstate(ptr %attr, i32 $DETACHED)
  %a2 = call i32 @pthread_attr_setstacksize(ptr %attr, i64 $STACK)
  %m0 = call i32 @sigfillset(ptr %all)
  %m1 = call i32 @sigdelset(ptr %all, i32 11)
  %m2 = call i32 @sigdelset(ptr %all, i32 $SIGBUS)
  %m3 = call i32 @sigdelset(ptr %all, i32 8)
  %m4 = call i32 @sigdelset(ptr %all, i32 4)
  %m5 = call i32 @pthread_sigmask(i32 $SETMASK, ptr %all, ptr %old)
  br label %loop
loop:
  %have = load i64, ptr @started
  %less = icmp slt i64 %have, %want
  br i1 %less, label %create, label %done
create:
  %rc = call i32 @pthread_create(ptr %thread, ptr %attr, ptr @worker, ptr null)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %created, label %done   ; no more threads to be had: the tickets stay unused
created:
  %have1 = add i64 %have, 1
  store i64 %have1, ptr @started
  br label %loop
done:
  %m6 = call i32 @pthread_sigmask(i32 $SETMASK, ptr %old, ptr null)
  %a3 = call i32 @pthread_attr_destroy(ptr %attr)
  ret void
}

; i64 fn(ptr ctx, i64 begin, i64 end, i64 worker) over blocks [0, n). Returns 0, or the first error a block reported.
define i64 @tl_parallel_for(ptr %fn, ptr %ctx, i64 %n, i64 %threads_asked) nounwind {
entry:
  %none = icmp slt i64 %n, 1
  br i1 %none, label %empty, label %plan
empty:
  ret i64 0
plan:
  %over = icmp sgt i64 %threads_asked, $MAXTHREADS
  %t0 = select i1 %over, i64 $MAXTHREADS, i64 %threads_asked
  %few = icmp slt i64 %n, %t0
  %threads = select i1 %few, i64 %n, i64 %t0
  %one = icmp slt i64 %threads, 2
  br i1 %one, label %serial, label %try
try:
  %got = cmpxchg ptr @busy, i32 0, i32 1 acq_rel monotonic
  %mine = extractvalue { i32, i1 } %got, 1
  br i1 %mine, label %launch, label %serial
serial:
  %alone = tail call i64 %fn(ptr %ctx, i64 0, i64 %n, i64 0)
  ret i64 %alone
launch:
  %helpers = sub i64 %threads, 1
  %have = load i64, ptr @started
  %short = icmp slt i64 %have, %helpers
  br i1 %short, label %start, label %publish
start:
  call void @grow(i64 %helpers)
  br label %publish
publish:
  %parts = shl i64 %threads, 2
  %c0 = udiv i64 %n, %parts
  %small = icmp eq i64 %c0, 0
  %chunk = select i1 %small, i64 1, i64 %c0
  store ptr %fn, ptr @fn
  store ptr %ctx, ptr @ctx
  store i64 %n, ptr @n
  store i64 %chunk, ptr @chunk
  store i64 %threads, ptr @threads
  store i64 0, ptr @next
  store i64 0, ptr @error
  %tickets = shl i64 %helpers, 32
  store atomic i64 %tickets, ptr @state seq_cst, align 8
  %g = atomicrmw add ptr @gen, i32 1 seq_cst
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp sgt i32 %asleep, 0
  br i1 %any, label %rouse, label %work
rouse:
  %count = trunc i64 %helpers to i32
  call void @wake(ptr @gen, i32 %count)
  br label %work
work:
  call void @drain(i64 0)
  %before = atomicrmw and ptr @state, i64 4294967295 seq_cst
  br label %watch
watch:
  %i = phi i32 [ 0, %work ], [ %i1, %pause ]
  %left = load atomic i64, ptr @state acquire, align 8
  %quiet = icmp eq i64 %left, 0
  br i1 %quiet, label %finish, label %count_spins
count_spins:
  %i1 = add i32 %i, 1
  %more = icmp slt i32 %i1, $SPINS
  br i1 %more, label %pause, label %sleep
pause:
  $PAUSE
  br label %watch
sleep:
  store atomic i32 1, ptr @caller_asleep seq_cst, align 4
  br label %check
check:
  %left2 = load atomic i64, ptr @state seq_cst, align 8
  %quiet2 = icmp eq i64 %left2, 0
  br i1 %quiet2, label %awake, label %doze
doze:
  %low = trunc i64 %left2 to i32
  call void @wait(ptr @state, i32 %low)
  br label %check
awake:
  store atomic i32 0, ptr @caller_asleep seq_cst, align 4
  br label %finish
finish:
  %result = load i64, ptr @error
  store atomic i32 0, ptr @busy release, align 4
  ret i64 %result
}

; After a fork the child has no workers, and whoever had the pool is gone.
define void @tl_pool_reset() nounwind {
  store i32 0, ptr @sleepers
  store i64 0, ptr @state
  store i32 0, ptr @caller_asleep
  store i64 0, ptr @started
  call void @wait_init()
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}

define i64 @tl_pool_started() nounwind {
  %n = load atomic i64, ptr @started acquire, align 8
  ret i64 %n
}
"""

_FUTEX = """
declare i64 @syscall(i64, ...)
; Return when @word may differ from `value` (FUTEX_WAIT_PRIVATE); may return early.
define internal void @wait(ptr %word, i32 %value) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i32 128, i32 %value, ptr null, ptr null, i32 0)
  ret void
}
define internal void @wake(ptr %word, i32 %count) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}
define internal void @wait_init() nounwind {
  ret void
}
"""

_CONDITION = """
@mutex = internal global [128 x i8] zeroinitializer, align 16
@condition = internal global [128 x i8] zeroinitializer, align 16
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
define internal void @wait(ptr %word, i32 %value) nounwind {
entry:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  br label %test
test:
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %value
  br i1 %same, label %doze, label %out
doze:
  %w = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %test
out:
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
define internal void @wake(ptr %word, i32 %count) nounwind {
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @condition)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
define internal void @wait_init() nounwind {
  %m = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}
"""

_MEMORY = """
@slots = internal global [$SLOTS x ptr] zeroinitializer, align 64
@cached = internal global i64 0, align 8
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)

; A 64-byte header holds the size of the block after it. Large freed blocks wait in @slots for the next allocation of about their
; size, since fresh pages cost far more than the kernel that uses them. Taking and returning a block is one atomic exchange.
define ptr @tl_alloc(i64 %asked) nounwind {
entry:
  %cell = alloca ptr
  %bad = icmp ugt i64 %asked, 4611686018427387904
  br i1 %bad, label %fail, label %sized
sized:
  %tiny = icmp ult i64 %asked, 64
  %bytes = select i1 %tiny, i64 64, i64 %asked
  %limit = shl i64 %bytes, 1
  %large = icmp uge i64 %bytes, $CACHEMIN
  br i1 %large, label %scan, label %fresh
scan:
  %i = phi i64 [ 0, %sized ], [ %i1, %again ]
  %slot = getelementptr ptr, ptr @slots, i64 %i
  %peek = load atomic ptr, ptr %slot monotonic, align 8
  %empty = icmp eq ptr %peek, null
  br i1 %empty, label %again, label %take
take:
  %block = atomicrmw xchg ptr %slot, ptr null acq_rel
  %lost = icmp eq ptr %block, null
  br i1 %lost, label %again, label %measure
measure:
  %size = load i64, ptr %block
  %enough = icmp uge i64 %size, %bytes
  %modest = icmp ule i64 %size, %limit
  %fit = and i1 %enough, %modest
  br i1 %fit, label %reuse, label %back
reuse:
  %c0 = atomicrmw sub ptr @cached, i64 %size monotonic
  %found = getelementptr i8, ptr %block, i64 64
  ret ptr %found
back:
  %put = cmpxchg ptr %slot, ptr null, ptr %block acq_rel monotonic
  %kept = extractvalue { ptr, i1 } %put, 1
  br i1 %kept, label %again, label %drop
drop:
  %c1 = atomicrmw sub ptr @cached, i64 %size monotonic
  call void @free(ptr %block)
  br label %again
again:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, $SLOTS
  br i1 %more, label %scan, label %fresh
fresh:
  %total = add i64 %bytes, 64
  %huge = icmp uge i64 %bytes, $HUGE
  %align = select i1 %huge, i64 $HUGE, i64 64
  %rc = call i32 @posix_memalign(ptr %cell, i64 %align, i64 %total)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %got, label %fail
got:
  %new = load ptr, ptr %cell
  br i1 %huge, label %advise, label %head
advise:
  $ADVISE
  br label %head
head:
  store i64 %bytes, ptr %new
  %data = getelementptr i8, ptr %new, i64 64
  ret ptr %data
fail:
  ret ptr null
}

define void @tl_free(ptr %data) nounwind {
entry:
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %done, label %look
look:
  %block = getelementptr i8, ptr %data, i64 -64
  %size = load i64, ptr %block
  %large = icmp uge i64 %size, $CACHEMIN
  br i1 %large, label %reserve, label %release
reserve:
  %before = atomicrmw add ptr @cached, i64 %size monotonic
  %sum = add i64 %before, %size
  %room = icmp ule i64 %sum, $CACHEMAX
  br i1 %room, label %scan, label %undo
scan:
  %i = phi i64 [ 0, %reserve ], [ %i1, %again ]
  %slot = getelementptr ptr, ptr @slots, i64 %i
  %put = cmpxchg ptr %slot, ptr null, ptr %block acq_rel monotonic
  %kept = extractvalue { ptr, i1 } %put, 1
  br i1 %kept, label %done, label %again
again:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, $SLOTS
  br i1 %more, label %scan, label %undo
undo:
  %after = atomicrmw sub ptr @cached, i64 %size monotonic
  br label %release
release:
  call void @free(ptr %block)
  br label %done
done:
  ret void
}

; Give the kept blocks back to the system.
define void @tl_trim() nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %slot = getelementptr ptr, ptr @slots, i64 %i
  %block = atomicrmw xchg ptr %slot, ptr null acq_rel
  %empty = icmp eq ptr %block, null
  br i1 %empty, label %next, label %drop
drop:
  %size = load i64, ptr %block
  %c = atomicrmw sub ptr @cached, i64 %size monotonic
  call void @free(ptr %block)
  br label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, $SLOTS
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

# What LLVM calls for f16 and bf16 where the CPU has no instruction. libgcc has them only since 12 and 13, and often not as a shared
# symbol. Narrowing from f64 first rounds to odd in f32, which keeps the second rounding exact (Boldo and Melquiond, 2008).
_CONVERSIONS = """
define half @__truncsfhf2(float %x) nounwind {
  %b = bitcast float %x to i32
  %s0 = lshr i32 %b, 16
  %sign = and i32 %s0, 32768
  %a = and i32 %b, 2147483647
  %odd0 = lshr i32 %a, 13
  %odd = and i32 %odd0, 1
  %n0 = add i32 %a, -939520001        ; rebias (112 << 23) and add half a unit less one
  %n1 = add i32 %n0, %odd
  %normal = lshr i32 %n1, 13
  %abs = bitcast i32 %a to float
  %moved = fadd float %abs, 0.5       ; the unit of 0.5 is the smallest f16: the addition rounds
  %d0 = bitcast float %moved to i32
  %denormal = sub i32 %d0, 1056964608
  %is_denormal = icmp ult i32 %a, 947912704
  %r0 = select i1 %is_denormal, i32 %denormal, i32 %normal
  %is_big = icmp uge i32 %a, 1199570944
  %r1 = select i1 %is_big, i32 31744, i32 %r0
  %q0 = lshr i32 %a, 13
  %q1 = and i32 %q0, 1023
  %q = or i32 %q1, 32256
  %is_nan = icmp ugt i32 %a, 2139095040
  %r2 = select i1 %is_nan, i32 %q, i32 %r1
  %r3 = or i32 %r2, %sign
  %r4 = trunc i32 %r3 to i16
  %r = bitcast i16 %r4 to half
  ret half %r
}
define bfloat @__truncsfbf2(float %x) nounwind {
  %b = bitcast float %x to i32
  %odd0 = lshr i32 %b, 16
  %odd = and i32 %odd0, 1
  %r0 = add i32 %b, 32767
  %r1 = add i32 %r0, %odd
  %r2 = lshr i32 %r1, 16
  %q = or i32 %odd0, 64
  %is_nan = fcmp uno float %x, 0.0
  %r3 = select i1 %is_nan, i32 %q, i32 %r2
  %r4 = trunc i32 %r3 to i16
  %r = bitcast i16 %r4 to bfloat
  ret bfloat %r
}
define internal float @to_odd(double %x) nounwind {
  %f = fptrunc double %x to float
  %b = bitcast float %f to i32
  %back = fpext float %f to double
  %inexact = fcmp one double %back, %x
  %low = and i32 %b, 1
  %even = icmp eq i32 %low, 0
  %ax = call double @llvm.fabs.f64(double %x)
  %ab = call double @llvm.fabs.f64(double %back)
  %short = fcmp olt double %ab, %ax
  %step = select i1 %short, i32 1, i32 -1
  %moved = add i32 %b, %step
  %fix = and i1 %inexact, %even
  %r0 = select i1 %fix, i32 %moved, i32 %b
  %r = bitcast i32 %r0 to float
  ret float %r
}
declare double @llvm.fabs.f64(double)
define half @__truncdfhf2(double %x) nounwind {
  %f = call float @to_odd(double %x)
  %r = call half @__truncsfhf2(float %f)
  ret half %r
}
define bfloat @__truncdfbf2(double %x) nounwind {
  %f = call float @to_odd(double %x)
  %r = call bfloat @__truncsfbf2(float %f)
  ret bfloat %r
}
define float @__extendhfsf2(half %x) nounwind {
  %h = bitcast half %x to i16
  %b = zext i16 %h to i32
  %s0 = and i32 %b, 32768
  %sign = shl i32 %s0, 16
  %a = and i32 %b, 32767
  %a13 = shl i32 %a, 13
  %n = add i32 %a13, 939524096
  %i = add i32 %n, 939524096
  %is_inf = icmp uge i32 %a, 31744
  %r0 = select i1 %is_inf, i32 %i, i32 %n
  %d0 = uitofp i32 %a to float
  %d1 = fmul float %d0, 0x3E70000000000000   ; 2^-24
  %d = bitcast float %d1 to i32
  %is_denormal = icmp ult i32 %a, 1024
  %r1 = select i1 %is_denormal, i32 %d, i32 %r0
  %q = or i32 %r1, 4194304
  %is_nan = icmp ugt i32 %a, 31744
  %r2 = select i1 %is_nan, i32 %q, i32 %r1
  %r3 = or i32 %r2, %sign
  %r = bitcast i32 %r3 to float
  ret float %r
}
"""

_FUTEX_NUMBERS = {"x86_64": 202, "amd64": 202, "aarch64": 98, "arm64": 98}
_PAUSES = {  # (declaration, call, how many make about 25 microseconds)
    "x86": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()", 1000),
    "arm": ("declare void @llvm.aarch64.isb(i32)", "call void @llvm.aarch64.isb(i32 15)", 2000),
    "": ("", "fence syncscope(\"singlethread\") seq_cst", 4000),
}

# The symbols that compiled kernels may use.
EXPORTS = (
    "tl_parallel_for", "tl_alloc", "tl_free",
    "__truncsfhf2", "__truncdfhf2", "__extendhfsf2", "__truncsfbf2", "__truncdfbf2",
)  # fmt: skip


def native_ir(system: str, machine: str, *, futex: bool = True) -> str:
    """The runtime module for `platform.system()`, `platform.machine()`. Without a known futex number (or with futex=False) the pool
    sleeps on a pthread condition variable. Needs POSIX threads."""
    machine = machine.lower()
    linux = system == "Linux"
    number = _FUTEX_NUMBERS.get(machine) if linux and futex else None
    family = "x86" if machine in ("x86_64", "amd64") else "arm" if machine in ("aarch64", "arm64") else ""
    declaration, pause, spins = _PAUSES[family]
    values = {
        "SPINS": spins, "PAUSE": pause, "STACK": _STACK_BYTES, "MAXTHREADS": _MAX_THREADS, "SLOTS": _CACHE_SLOTS, "CACHEMIN": _CACHE_MIN,
        "CACHEMAX": _CACHE_MAX, "HUGE": _HUGE, "FUTEX": number, "DETACHED": 1 if linux else 2, "SETMASK": 2 if linux else 3,
        "SIGBUS": 7 if linux else 10,
        "ADVISE": "%adv = call i32 @madvise(ptr %new, i64 %total, i32 14)" if linux else "",
    }  # fmt: skip
    text = "\n".join((declaration, _POOL, _FUTEX if number else _CONDITION, _MEMORY, _CONVERSIONS))
    return Template(text).substitute(values)
