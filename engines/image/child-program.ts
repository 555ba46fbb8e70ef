/**
 * Runs a program of this folder in a child process with bounds on time, memory and output. Node's permission model lets it read its own
 * files, its packages and its scratch folder, and write the scratch folder only.
 */
import { join } from 'node:path'
import { runChild, type ChildResult } from '../../src/backends/engines/process/child.ts'
import { packageFolders } from './packages.ts'
import type { ProgramResult } from './operation-result.ts'

export type ProgramRun = {
  scratch: string
  /** Pixels of inputs and output, bytes of the output. */
  limits: { pixels: number; bytes: number }
  /** Bytes of the model, which decide the memory of its network. */
  modelBytes: number
  signal: AbortSignal
  /** Gets whole percents from 0 to 99. */
  progress: (percent: number) => void
}

// Node strips the types of a program by a WebAssembly module: V8 reserves 8 GiB of address space for its memory and uses little of it.
const RESERVED_BYTES = 10 * 2 ** 30
/** A network has its weights in memory, and what comes out of its layers: u2netp 250 MB more than its file. */
const MEMORY = { bytes: 2 * 2 ** 30, bytesPerPixel: 64, bytesPerModelByte: 16 }
const PROCESSOR = { seconds: 120, secondsPerMegapixel: 30, secondsPerModelByte: 1e-4 }
const WALL_MS = 3_600_000

/** Resolves to how the process ended and to the last line of the program, null without one. Rejects with the reason of an aborted signal. */
export async function runChildProgram(
  { scratch, limits, modelBytes, signal, progress }: ProgramRun,
  program: string,
  job: object,
): Promise<{ ended: ChildResult; result: ProgramResult | null }> {
  let result: ProgramResult | null = null
  const onLine = (line: string): void => {
    const message = messageOf(line)
    if (message && 'percent' in message) progress(Math.min(99, Math.floor(message.percent)))
    else if (message) result = message
  }
  const ended = await runChild({
    // No NODE_OPTIONS either that instrumentation of child processes may have added: the permission model refuses its code. Newer versions of
    // ONNX Runtime send telemetry unless they are told not to.
    command: '/usr/bin/env',
    args: [
      '-i',
      'ORT_DISABLE_TELEMETRY=1',
      process.execPath,
      ...sandbox(scratch),
      join(import.meta.dirname, 'main.ts'),
      program,
      JSON.stringify(job),
    ],
    cwd: scratch,
    limits: {
      wallMs: WALL_MS,
      cpuSeconds: PROCESSOR.seconds + (PROCESSOR.secondsPerMegapixel * limits.pixels) / 1e6 + PROCESSOR.secondsPerModelByte * modelBytes,
      addressSpaceBytes: RESERVED_BYTES + MEMORY.bytes + MEMORY.bytesPerPixel * limits.pixels + MEMORY.bytesPerModelByte * modelBytes,
      fileBytes: limits.bytes,
    },
    signal,
    onLine,
  })
  if (ended.outcome === 'killed' && ended.by === 'signal') throw signal.reason
  return { ended, result }
}

// Node looks in the manifest whether a file is an ES module.
const PAINTER = ['package.json', 'src/backends/engines/painter'].map((path) => join(import.meta.dirname, '../..', path))

/** A line of a program; null for one that a library printed. */
function messageOf(line: string): { percent: number } | ProgramResult | null {
  try {
    return JSON.parse(line) as { percent: number } | ProgramResult
  } catch {
    return null
  }
}

/** The arguments of Node that confine a program. Native code of the packages is not bound by them. */
function sandbox(scratch: string): string[] {
  const readable = [import.meta.dirname, ...PAINTER, ...packageFolders(), scratch]
  return [
    '--no-warnings',
    '--permission',
    '--allow-addons',
    ...readable.map((path) => `--allow-fs-read=${path}`),
    `--allow-fs-write=${scratch}`,
  ]
}
