/** V8's flags during a start. A start runs almost everything once and allocates much short-lived memory; V8 would prepare for more of it, and keep what it took. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { growYoungGeneration, setGrowthFactor } from './young-generation.ts'

/** The controller's start is not among them: with ten thousand keys it has hot code. */
const LIMITED = ['all', 'gateway', 'worker', 'dispatcher']
const ORDINARY_START_MS = 5_000
const LARGE_HEAP_BYTES = 100 * 1024 * 1024

/**
 * Sets the flags for the start of a role, or for a command, which has the same ones: V8 refuses compiled code of the cache that was compiled with other flags.
 * Calls `flagsChanged` after each change; later ones only go back. Returns the function to call once the role is ready; after a failed start there is nothing to undo.
 */
export function limitStartMemory(roleOrCommand: string, flagsChanged: () => void): () => void {
  setStartFlags(roleOrCommand, flagsChanged)
  if (roleOrCommand === 'controller') return () => {}
  // Whatever takes longer than an ordinary start has hot code.
  setTimeout(compileHotCode, ORDINARY_START_MS, true).unref()
  return () => {
    if (!LIMITED.includes(roleOrCommand)) return
    compileHotCode(true)
    growYoungGeneration()
    releaseMemory()
  }
}

/** The flags alone, for as long as the process runs. */
export function setStartFlags(roleOrCommand: string, flagsChanged: () => void): void {
  // V8 would grow the young generation to 32 MB, and not shrink it while the process is idle.
  setGrowthFactor(1)
  flagsChanged()
  // A controller is limited by its API server, not by garbage collection: with ten thousand keys it uses 150 MB less with a small young generation for ever, and an old generation that grows by half.
  if (roleOrCommand === 'controller') setFlagsFromString('--heap-growing-percent=50')
  // The compilers of hot code take 15 MB.
  else compileHotCode(false)
  flagsChanged()
}

/** By a filter that every function passes, or none. V8 asks it again each time a function is hot. */
function compileHotCode(isAllowed: boolean): void {
  for (const compiler of ['turbo', 'maglev']) setFlagsFromString(`--${compiler}-filter=${isAllowed ? '*' : '~'}`)
}

/** Returns the memory that only the start used to the system: 12 MB, in a tenth of a second. Node has no interface for it. A large heap would take longer than clients should wait. */
function releaseMemory(): void {
  if (process.memoryUsage().heapUsed > LARGE_HEAP_BYTES) return
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')({ type: 'major', flavor: 'last-resort' })
  setFlagsFromString('--no-expose-gc')
}
