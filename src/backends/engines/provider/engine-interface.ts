/** What the engines of providers are written against, until `../engine.ts` has operations, inputs and jobs: then this file goes, and its importers name that one. */
import type { Amounts, GenerationRequest } from '../../../domain/generations.ts'
import type { Control, Made, NotMade } from '../engine.ts'

/** A validated operation with its defaults. Times are milliseconds. */
export type OperationRequest =
  | { verb: 'background_remove'; background: string; crop: boolean; format: string }
  | { verb: 'upscale'; scale: 2 | 3 | 4; format: string }
  | { verb: 'ai_edit'; prompt: string; strength: number | null; seed: number | null; format: string }
  | { verb: 'inpaint'; prompt: string; seed: number | null; growMask: number; format: string }
  | { verb: 'trim'; startMs: number; endMs: number | null; mode: 'accurate' | 'fast'; format: string }
  | { verb: 'merge'; transition: 'none' | 'fade'; fit: 'contain' | 'cover'; format: string }

export type EngineRequest = GenerationRequest | OperationRequest

/** An input of an operation: fetched, sniffed, inside the limits of bytes. */
export type Input = {
  role: 'media' | 'mask'
  contentType: string
  bytes: number
  /** May be called more than once. */
  read(): AsyncIterable<Uint8Array>
}

/** The route's: neither input nor output may exceed them. */
export type Limits = { pixels: number; durationMs: number; bytes: number }

export type Run = Control & {
  /** The route's. */
  model: string | null
  /** Empty for generations. */
  inputs: readonly Input[]
  limits: Limits
  /** The provider's job of an earlier run of this task whose lease was lost, or null. `remember` writes down that of this run, fenced by its epoch. */
  job: { id: string | null; remember(id: string): Promise<void> }
  /** Of the task and the attempt: the same when a lost lease is run again. */
  idempotencyKey: string
}

export type Engine = {
  offers: Readonly<Record<string, { formats: readonly [string, ...string[]] }>>
  /** What is missing here, per verb that is off for that reason, in a sentence for the operator. */
  missing: Readonly<Record<string, string>>
  quote(request: EngineRequest, limits: Limits): Amounts
  run(request: EngineRequest, run: Run): Promise<Made | NotMade>
  close(): Promise<void>
}

export type OpenEngine = (name: string, options: Record<string, unknown>) => Promise<Engine>
