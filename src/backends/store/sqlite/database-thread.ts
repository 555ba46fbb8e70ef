/** A database thread, seen from the thread that serves: calls in batches, each with a time limit, in a bounded number; a thread that ended is started again. */
import { setTimeout as pause } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { removeEntry } from '../../../domain/long-lived-maps.ts'
import { Unavailable } from '../../../domain/errors.ts'
import { errorOf, type Call, type FromThread, type Reply, type ThreadData, type ToThread } from './database-thread-messages.ts'

export type Thread = {
  /** Opens the file; returns the names of the verbs. Throws what `openDatabase` throws. */
  open(): Promise<string[]>
  /**
   * Runs a verb. Throws `Unavailable` at once while too much waits for the disk, and after 5 s without an answer; the verb may still take effect then.
   * `size`: about the bytes that wait in memory. `answered` is called with its answer, however late.
   */
  call(verb: string, args: unknown[], size?: number, answered?: (value: unknown) => void): Promise<unknown>
  /** Waits for the calls that were sent, closes the file and ends the thread. */
  close(): Promise<void>
}

const TIMEOUT_MS = 5_000
const SWEEP_MS = 500
const MAX_CALLS = 5_000
const MAX_BYTES = 64 * 1024 * 1024
/** Bytes of a call whose size is not given. */
const CALL_BYTES = 2_000
const RESTART_MS = 500

type Pending = {
  resolve: (value: unknown) => void
  reject: (error: unknown) => void
  answered: ((value: unknown) => void) | undefined
  /** Null once the caller was refused: the call still waits in the thread. */
  since: number | null
  size: number
}

/** `lost` is called when the thread ended by itself: the outcome of its calls is unknown. */
export function startThread(data: ThreadData, lost: () => void): Thread {
  let pending = new Map<number, Pending>()
  let bytes = 0
  let ids = 0
  let outgoing: Call[] = []
  let opening = Promise.withResolvers<string[]>()
  opening.promise.catch(() => {})
  let state: 'starting' | 'open' | 'closing' = 'starting'
  let ended: Promise<void> | null = null
  let drained: (() => void) | null = null
  let sweep: NodeJS.Timeout | undefined
  let worker = spawn()

  function spawn(): Worker {
    // The options of this process, such as hooks of a test runner, are not for it.
    const thread = new Worker(new URL('./database-thread-main.ts', import.meta.url), {
      workerData: data,
      execArgv: [],
      name: `sqlite ${data.kind}`,
    })
    thread.on('message', (message: FromThread) => receive(message))
    let reason: unknown
    // The reason of an end; `exit` follows.
    thread.on('error', (error) => {
      reason = error
      opening.reject(new Unavailable('store', error))
    })
    thread.on('exit', () => void exited(reason))
    return thread
  }

  function send(message: ToThread): void {
    worker.postMessage(message)
  }

  function receive(message: FromThread): void {
    if ('replies' in message) return message.replies.forEach(settle)
    if ('notOpened' in message) return opening.reject(errorOf(message.notOpened))
    if (state === 'starting') state = 'open'
    if (pending.size === 0) worker.unref()
    opening.resolve(message.verbs)
  }

  function settle({ id, value, failure }: Reply): void {
    const call = pending.get(id)
    if (!call) return
    forget(id, call)
    if (failure) return call.reject(errorOf(failure))
    call.answered?.(value)
    call.resolve(value)
  }

  function forget(id: number, { size }: Pending): void {
    pending = removeEntry(pending, id)
    bytes -= size
    if (pending.size > 0) return
    clearInterval(sweep)
    worker.unref()
    drained?.()
  }

  function call(verb: string, args: unknown[], size = CALL_BYTES, answered?: (value: unknown) => void): Promise<unknown> {
    if (state !== 'open')
      return Promise.reject(unavailable(state === 'closing' ? 'the store is closed' : 'the thread of the database starts again'))
    if (pending.size >= MAX_CALLS || bytes + size > MAX_BYTES)
      return Promise.reject(new Unavailable('store', new Error('too many calls wait for the disk'), 'store_queue'))
    return new Promise((resolve, reject) => {
      if (pending.size === 0) {
        worker.ref()
        // After the answers that have come: this thread may have stood still for longer than the time of a call.
        sweep = setInterval(() => setImmediate(expire), SWEEP_MS).unref()
      }
      const id = ++ids
      pending.set(id, { resolve, reject, answered, since: performance.now(), size })
      bytes += size
      if (outgoing.push({ id, verb, args }) === 1) setImmediate(flush)
    })
  }

  /** One message for all calls of a turn of the event loop. */
  function flush(): void {
    const calls = outgoing
    outgoing = []
    if (calls.length > 0) send(calls)
  }

  function expire(): void {
    const since = performance.now() - TIMEOUT_MS
    for (const call of pending.values()) {
      if (call.since === null) continue
      if (call.since > since) return
      call.since = null
      call.reject(unavailable('no answer of the disk in time'))
    }
  }

  /** Nothing that was sent is known to have taken effect. */
  async function exited(reason: unknown): Promise<void> {
    outgoing = []
    const failure = unavailable('the thread of the database ended', reason)
    for (const [id, waiting] of pending) {
      waiting.reject(failure)
      forget(id, waiting)
    }
    opening.reject(failure)
    if (state !== 'open') return
    state = 'starting'
    lost()
    await restart()
  }

  async function restart(): Promise<void> {
    while (state === 'starting') {
      await pause(RESTART_MS, undefined, { ref: false })
      if (state !== 'starting') return
      opening = Promise.withResolvers<string[]>()
      worker = spawn()
      send('open')
      await opening.promise.catch(() => worker.terminate())
    }
  }

  async function end(): Promise<void> {
    const wasOpen = state === 'open'
    // It may end before it is closed.
    const exited = new Promise((resolve) => worker.once('exit', resolve))
    state = 'closing'
    flush()
    if (pending.size > 0) await new Promise<void>((resolve) => (drained = resolve))
    if (!wasOpen) return void (await worker.terminate())
    worker.ref()
    send('close')
    await exited
  }

  return {
    open: () => {
      send('open')
      return opening.promise
    },
    call,
    close: () => (ended ??= end()),
  }
}

function unavailable(reason: string, cause?: unknown): Unavailable {
  return new Unavailable('store', new Error(reason, { cause }))
}
