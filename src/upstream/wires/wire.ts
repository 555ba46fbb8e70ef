/** The two wires of the OpenAI API, and what a request or an answer is on either. A translation between them is one more maker of these. */
import type { Failure } from '../../domain/errors.ts'
import type { Usage } from '../../domain/token-windows.ts'
import type { Meter } from '../usage/output-meter.ts'

export type WireName = 'chat' | 'responses'

/** The path of each wire below an upstream's `baseUrl`. */
export const PATHS: Record<WireName, string> = { chat: '/chat/completions', responses: '/responses' }

/** The one model that clients know. */
export const MODEL = 'svc-code'

/** What of an upstream shapes the body that it is sent. */
export type Target = { model: string; maxTokensField: 'max_tokens' | 'max_completion_tokens' | null }

/** One request, ready to be put to any upstream that serves its wire. */
export type Call = {
  wire: WireName
  stream: boolean
  /** The JSON body for an upstream. */
  body(target: Target): string
  /** Rebuilds a streamed answer; each attempt takes a fresh one. */
  open(): StreamRebuilder
  /** Rebuilds an answer in JSON. Throws `BadAnswer`, or the `Failure` that the answer stands for. */
  answer(body: unknown): JsonAnswer
}

export type JsonAnswer = { body: string; usage: Usage | null; meter: Meter }

/** `broken` carries what the client is told; `done` only after the wire's own terminal event. */
export type Phase = { name: 'open' } | { name: 'done' } | { name: 'broken'; failure: Failure }

/**
 * Makes the client's stream from the upstream's. What it gives is a string of bytes (`latin1`), always whole events, and the same for every
 * way in which the upstream's bytes are split.
 */
export type StreamRebuilder = {
  push(chunk: Buffer): string
  /** The upstream's body ended. Anything but `done` afterwards is a failure. */
  end(): string
  /** The wire's own words for a failure in the middle of a stream. Nothing may follow them. */
  fail(failure: Failure): string
  phase(): Phase
  /** As the upstream reported it so far, or null. */
  usage(): Usage | null
  meter: Meter
}

/** An upstream answered something that is not the wire. Never shown to a client. */
export class BadAnswer extends Error {}
