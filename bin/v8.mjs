/**
 * The flags of V8, for a shorter start and less idle memory (docs/benchmarks.md, "Memory and start"). Plain JavaScript, because the cache of compiled code has to be open
 * before any TypeScript is loaded.
 */
import { accessSync, constants as access, existsSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import module from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { constants, PerformanceObserver } from 'node:perf_hooks'
import { cachedDataVersionTag, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

const ROOT = join(import.meta.dirname, '..')
/** Whatever takes longer than an ordinary start has hot code. */
const ORDINARY_START_MS = 5_000
const ROLES = ['all', 'gateway', 'worker', 'dispatcher', 'controller']
const LARGE_HEAP_BYTES = 100 * 1024 * 1024
/** Collections of the smallest young generation take half a millisecond, so that up to this rate a larger one would save no more than 1.5 % of a core. */
const COLLECTIONS_PER_SECOND = 30
/** Three times as many collections as hundreds of streams take that open at once are within the rate. */
const WINDOW_MS = 5_000
/**
 * 8 s after the last collection of an idle process V8 collects again, to return memory, and forgets the shapes of objects that are not alive. The code that was compiled for
 * them goes with them, and the next requests take twice as long for seconds (bench/notes/coding.md, "The slowest requests").
 */
const RETURN_MEMORY_AFTER_MS = 600_000

/**
 * Opens the cache of compiled code without its types: later starts, and the database's threads, neither compile it nor load the stripper of types, 25 MB in each thread.
 * Returns the function to call after each change of V8's flags.
 */
export function openCompileCache() {
  const shipped = join(ROOT, 'compiled')
  const flagsChanged = existsSync(shipped) && process.env.NODE_COMPILE_CACHE === undefined ? linkTo(shipped) : () => {}
  // Threads take the folder from the environment.
  process.env.NODE_COMPILE_CACHE ??= join(ROOT, 'node_modules/.cache/tollgate')
  module.enableCompileCache(process.env.NODE_COMPILE_CACHE)
  return flagsChanged
}

/**
 * Uses the code of an image (image/compile.ts, decision 0041). V8 accepts code of its own version and flags, but Node reads it from a subfolder that it also names after the
 * user, who is another one in a cluster. So that subfolder becomes a link to the image's code. V8's tag in its name is of the flags at the start of a thread.
 */
function linkTo(shipped) {
  const folder = temporaryFolder()
  // Without a folder to link from, the start compiles everything.
  if (folder === null) return () => {}
  if (!isWritable(shipped)) process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const linked = new Set()
  const link = () => {
    // As `GetCacheVersionTag` in Node's src/compile_cache.cc.
    const subfolder = `${process.version}-${process.arch}-${cachedDataVersionTag().toString(16).padStart(8, '0')}-${process.getuid()}`
    if (linked.has(subfolder)) return
    linked.add(subfolder)
    attempt(() => symlinkSync(shipped, join(folder, subfolder)))
  }
  process.env.NODE_COMPILE_CACHE = folder
  link()
  return link
}

/** Null where none can be made: the parents may be read-only, full or not there. A read-only container without /tmp has /dev/shm. */
function temporaryFolder() {
  const make = (parent) => attempt(() => mkdtempSync(join(parent, 'tollgate-compiled-')))
  return make(tmpdir()) ?? make('/dev/shm')
}

function isWritable(folder) {
  return attempt(() => accessSync(folder, access.W_OK)) !== null
}

/** What the call returns, or null if it throws. */
function attempt(call) {
  try {
    return call()
  } catch {
    return null
  }
}

/** Sets the flags for a start. Returns the function to call once the role is ready; after a failed start, and after a command, there is nothing to undo. */
export function limitStartMemory(roleOrCommand, flagsChanged) {
  setStartFlags(flagsChanged)
  const late = () => {
    compileHotCode(true)
    flagsChanged()
  }
  setTimeout(late, ORDINARY_START_MS).unref()
  return () => {
    if (!ROLES.includes(roleOrCommand)) return
    compileHotCode(true)
    // The API server limits a controller, not garbage collection. With ten thousand keys it takes 150 MB less.
    if (roleOrCommand === 'controller') setFlagsFromString('--heap-growing-percent=50')
    else {
      growYoungGeneration()
      setFlagsFromString(`--memory-reducer-delay-ms=${RETURN_MEMORY_AFTER_MS}`)
    }
    releaseMemory()
  }
}

/**
 * The flags alone, the same for each role and command: V8 refuses code of the cache that was compiled with other flags. A start runs almost everything once and allocates much
 * short-lived memory; V8 would grow the young generation to 32 MB, and not shrink it while the process is idle. The compilers of hot code take 15 MB.
 */
export function setStartFlags(flagsChanged) {
  setGrowthFactor(1)
  compileHotCode(false)
  flagsChanged()
}

/** By a filter that every function passes, or none. V8 asks it again each time a function is hot. */
function compileHotCode(isAllowed) {
  for (const compiler of ['turbo', 'maglev']) setFlagsFromString(`--${compiler}-filter=${isAllowed ? '*' : '~'}`)
}

/** Returns the memory that only the start used to the system: 12 MB, in a tenth of a second. Node has no interface for it. A large heap would take longer than clients should wait. */
function releaseMemory() {
  if (process.memoryUsage().heapUsed > LARGE_HEAP_BYTES) return
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')({ type: 'major', flavor: 'last-resort' })
  setFlagsFromString('--no-expose-gc')
}

/**
 * Lets the young generation double only while it is collected often. V8 doubles it, up to 64 MB, whenever as much as it holds has survived, as each stream does that is only open:
 * up to 50 KiB for each of 500 streams.
 */
export function growYoungGeneration(perSecond = COLLECTIONS_PER_SECOND, windowMs = WINDOW_MS) {
  let since = performance.now()
  let collections = 0
  setGrowthFactor(1)
  new PerformanceObserver((list) => {
    collections += list.getEntries().filter(({ detail }) => detail.kind === constants.NODE_PERFORMANCE_GC_MINOR).length
    const now = performance.now()
    // At full load it is known in half a second: until it has grown, a request takes half as long again.
    const isBusy = collections * 1000 > perSecond * Math.max(windowMs, now - since)
    if (isBusy) setGrowthFactor(2)
    if (now - since < windowMs) return
    if (!isBusy) setGrowthFactor(1)
    since = now
    collections = 0
  }).observe({ type: 'gc' })
}

/** 1: it keeps its size. */
function setGrowthFactor(factor) {
  setFlagsFromString(`--semi-space-growth-factor=${factor}`)
}
