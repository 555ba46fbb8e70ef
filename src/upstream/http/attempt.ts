/** One attempt at one upstream, up to the first bytes of its answer. Until then it can be retried; afterwards it cannot. */
import type { Dispatcher } from 'undici'
import type { TemplateSets } from '../sse/event-templates.ts'
import type { UpstreamCall } from '../wires/wire.ts'
import { exchange, type FlowControl, type OutgoingRequest } from './upstream-request.ts'
import { readerFor, type AttemptControl, type ResponseReader } from './response-reader.ts'
import type { ResponseTimeouts } from './response-timeouts.ts'
import { AttemptError, type UpstreamAnswer } from './upstream-answer.ts'

/**
 * Sends the call. Resolves with the first bytes of a stream or with a whole JSON answer. Rejects with a `Failure` when the request is at
 * fault, with an `AttemptError` when the upstream is, and with the signal's reason when it is aborted before that.
 */
export function attempt(
  dispatcher: Dispatcher,
  request: OutgoingRequest,
  timeouts: ResponseTimeouts,
  templates: TemplateSets,
  call: UpstreamCall,
  signal: AbortSignal,
): Promise<UpstreamAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<UpstreamAnswer>()
  let reader: ResponseReader | null = null
  let flow: FlowControl | null = null
  let settled = false
  // The call holds the whole request: it is released once an answer has begun, only the rewriter stays.
  let pending: UpstreamCall | null = call
  const onAbort = () => flow?.abort(signal.reason as Error)
  const settle = () => {
    settled = true
    signal.removeEventListener('abort', onAbort)
  }
  const control: AttemptControl = {
    resolve: (answer) => {
      settle()
      resolve(answer)
    },
    reject: (error) => {
      settle()
      reject(error)
      flow?.abort(error)
    },
    pause: () => flow?.pause(),
    resume: () => flow?.resume(),
    abort: (reason) => flow?.abort(reason),
  }
  flow = exchange(dispatcher, request, timeouts, {
    started(status, headers) {
      if (pending) reader = readerFor(status, headers, pending, control, templates)
      pending = null
    },
    data: (chunk) => reader?.data(chunk),
    ended(error) {
      if (!settled && signal.aborted) control.reject(signal.reason as Error)
      else if (reader) reader.ended(error)
      else control.reject(new AttemptError('no response', 0, error))
    },
  })
  if (signal.aborted) onAbort()
  else if (!settled) signal.addEventListener('abort', onAbort)
  return promise
}
