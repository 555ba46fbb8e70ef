/** What is kept of a coding request after its end, for its tenant: never a word of the prompt or the answer, and nothing of an upstream. */
import type { Usage } from './token-windows.ts'

/** Of each plan the newest so many are kept. */
export const KEPT_REQUESTS = 1000

export type CodingRequest = {
  /** The id of its reservation. */
  id: string
  /** The `x-request-id` of its answer, for the operator. Absent in those of earlier releases. */
  requestId?: string
  subscription: string
  keyId: string
  /** When it arrived, epoch milliseconds. */
  at: number
  durationMs: number
  /** Of the answer. */
  status: number
  /** The code of its error; null without one. */
  code: string | null
  /** False: the client left before the end of the answer. */
  isComplete: boolean
  /** Null where it is unknown, and nothing was charged. */
  usage: Usage | null
  /** Tokens that the windows count; null where the charge is unknown. */
  charged: number | null
}

/** A place in the list of a plan's requests, which is ordered by these, the newest first. */
export type RequestPosition = Pick<CodingRequest, 'at' | 'id'>
