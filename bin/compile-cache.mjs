import { accessSync, constants, existsSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import module from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { cachedDataVersionTag } from 'node:v8'

const ROOT = join(import.meta.dirname, '..')

/**
 * Opens the cache of compiled code without its types: later starts, and the database's threads, neither compile it nor load the stripper of types, 25 MB in each thread.
 * The controller has a folder of its own, because V8 refuses code that was compiled with other flags. Returns the function to call after each change of V8's flags.
 */
export function openCompileCache(roleOrCommand) {
  const name = roleOrCommand === 'controller' ? 'controller' : 'roles'
  const shipped = join(ROOT, 'compiled', name)
  const flagsChanged = existsSync(shipped) && process.env.NODE_COMPILE_CACHE === undefined ? linkTo(shipped) : () => {}
  // Threads take the folder from the environment.
  process.env.NODE_COMPILE_CACHE ??= join(ROOT, 'node_modules/.cache/tollgate', name)
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
  return attempt(() => accessSync(folder, constants.W_OK)) !== null
}

/** What the call returns, or null if it throws. */
function attempt(call) {
  try {
    return call()
  } catch {
    return null
  }
}
