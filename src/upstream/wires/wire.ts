/** The wires: OpenAI's chat completions and responses, and Anthropic's messages. The interface of their requests, JSON answers and streams. */
import type { Failure } from '../../domain/errors.ts'
import type { Usage } from '../../domain/token-windows.ts'
import type { OutputMeter } from '../usage/output-meter.ts'
import type { Address } from '../policy/content-parts.ts'
import type { TemplateSets } from '../sse/event-templates.ts'
import type { RequestPolicy } from '../policy/request-policy.ts'
import type { Ids } from './encrypted-ids.ts'
import type { UpstreamBody } from './upstream-body.ts'

export const WIRES = ['chat', 'responses', 'messages'] as const

export type WireName = (typeof WIRES)[number]

/** The path of each wire below an upstream's `baseUrl`. */
export const PATHS: Record<WireName, string> = {
  chat: '/chat/completions',
  responses: '/responses',
  messages: '/messages',
}

/** The settings of an upstream that shape the body it is sent. `origin`: another one for an upstream that may not read what this one gave. */
export type Target = {
  origin: string
  /** It refuses turns without their `reasoning_content`. */ needsReasoning?: boolean
  model: string
  maxTokensField: 'max_tokens' | 'max_completion_tokens' | null
  policy: RequestPolicy
}

/** A valid request of a client. */
export type CodingRequest = {
  stream: boolean
  /** The client's limit of output tokens over all choices; null when it set none. */
  maxOutputTokens: number | null
  /** The number of choices to generate. */
  choices: number
  /** The answer has what the client sent: its memory counts until the answer is sent. */
  repeatsInput?: boolean
  /** The addresses in the conversation that an upstream would fetch. To be vetted before `call`. */
  addresses: readonly Address[]
  /**
   * `cap`: the plan's limit of output tokens over all choices. `now`: epoch seconds. `wires`: those over which it may be sent, the preferred one
   * first. Consumes the body: it is changed in place. Throws `unsupported_parameter` when none of the wires can express the request.
   */
  call(cap: number, ids: Ids, now: () => number, wires: readonly WireName[]): UpstreamCall
}

/** One request, ready to be sent to any upstream of its wire. The answer is always of the client's wire. */
export type UpstreamCall = UpstreamBody & {
  wire: WireName
  stream: boolean
  /** The client's names in `anthropic-beta`, of which each upstream gets those that its policy lets pass. */
  betas?: readonly string[]
  /** What an upstream must list in `allow` to get this call; undefined for one that any upstream of the wire can take. */
  needs?: string
  /** Opens the rewriter of a streamed answer, a new one for each attempt. `templates`: of the upstream. */
  openRewriter(templates?: TemplateSets): StreamRewriter
  /** Rewrites a JSON answer. Throws `BadAnswer`, or the `Failure` that the answer reports. */
  rewriteJson(body: unknown): JsonAnswer
  /** Whether the client speaks another wire, so that the names of members are not those of its request. */
  isTranslation: boolean
  /** The same request over the next wire, for upstreams that do not speak this one; null if there are none or it cannot be translated. */
  translated: UpstreamCall | null
}

export type JsonAnswer = {
  /** The JSON for the client. `estimate` stands for the usage when the upstream reported none. */
  body(estimate: Usage): string
  usage: Usage | null
  meter: OutputMeter
  /** The answer is whole, and the client cannot use it: it is charged, and the client gets this failure. */
  failure?: Failure
}

/**
 * `broken` carries the failure for the client; `isAnswer`: the upstream has answered in full, which is charged and not tried again. `done` follows
 * only the wire's own terminal event, or `cutsOff` the upstream before it. An open stream whose `answer` is complete lacks its usage and terminal event
 * alone; `stopped`: it ended for the client, by a stop sequence that the upstream does not know.
 */
export type Phase =
  | { name: 'open'; answer?: 'complete' | 'stopped' }
  | { name: 'done'; cutsOff: boolean }
  | { name: 'broken'; failure: Failure; isAnswer?: true }

/**
 * Makes the client's stream from the upstream's. Returns whole events as bytes (a latin1 string), equal for every way in which the upstream's
 * bytes are split.
 */
export type StreamRewriter = {
  push(chunk: Buffer): string
  /** The upstream's body ended. Any phase but `done` afterwards is a failure. */
  end(): string
  /** The wire's error event for a failure in the middle of a stream. It is the last event. */
  fail(failure: Failure, requestId?: string): string
  phase(): Phase
  /**
   * The terminal events of a stream that is done, where they carry the usage and the upstream reported none: they wait for the estimate.
   * Empty when they were written already.
   */
  terminalEvents(estimate: Usage): string
  /** As the upstream reported it so far, or null. */
  usage(): Usage | null
  meter: OutputMeter
}

/** An upstream's answer is not of the wire. Never shown to a client. */
export class BadAnswer extends Error {}
