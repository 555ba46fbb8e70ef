/** A job at a provider: started once, remembered before it is polled, polled with growing pauses until it ends, and canceled there when its task has ended. */
import { unlessAborted } from '../../../concurrency/unless-aborted.ts'
import type { NotMade, Run } from '../engine.ts'
import type { Answer } from './api-requests.ts'
import { failureOf, faulty, type Complaint } from './failure.ts'
import type { Outside } from './environment.ts'

/** The status of a job after a poll. `NotMade`: the job has failed. */
export type JobStatus<T> =
  | { outcome: 'ended'; value: T }
  /** `percent`: its progress, null where the provider has none. */
  | { outcome: 'running'; percent: number | null }
  /** The provider has no such job. */
  | { outcome: 'unknown'; failure: NotMade }
  /** The poll failed; the job may still run. */
  | { outcome: 'unanswered'; failure: NotMade }
  | NotMade

export type Jobs<T> = {
  /** Creates the job. Its request is not aborted with the run: the job might exist all the same, under an unknown id. */
  start(): Promise<{ outcome: 'started'; id: string; status: JobStatus<T> } | NotMade>
  poll(id: string): Promise<JobStatus<T>>
  /** Best effort. Called after the run as well. */
  cancel(id: string): Promise<unknown>
}

/** The status after a poll whose answer does not describe the job. */
export function failedPoll(what: string, answer: Answer, complaintOf: (body: unknown) => Complaint): JobStatus<never> {
  if (answer.outcome === 'answered' && answer.status === 404)
    return { outcome: 'unknown', failure: faulty(`${what}: there is no such job any more`, true) }
  const failure = failureOf(what, answer, complaintOf)
  return failure.retryable ? { outcome: 'unanswered', failure } : failure
}

const PAUSE_MS = { first: 500, factor: 1.5, longest: 10_000, unanswered: 60_000, retryAfter: 600_000 }
/** How long polls may go unanswered before the run fails: a job that is paid for is worth more patience than a request. */
const UNANSWERED_MS = 300_000

type Around = Pick<Outside, 'clock' | 'pause' | 'random'> & {
  /** Takes work that continues after the run. */
  background(work: Promise<unknown>): void
}

/**
 * Runs a job to its end, or resumes the one of an earlier run; a job that the provider no longer has is started anew, unless the next attempt does
 * that. Rejects with the reason of the aborted signal, and what `jobs` throw. An aborted job is canceled, unless the next run will resume it.
 */
export async function runJob<T>(jobs: Jobs<T>, run: Run, around: Around): Promise<{ outcome: 'ended'; value: T } | NotMade> {
  const { signal, job } = run
  let remembered = job.id
  try {
    if (remembered !== null) {
      const resumed = await follow(jobs, remembered, null, run, around)
      if (resumed.outcome !== 'unknown') return resumed
      if (job.resumeOnly) return resumed.failure
      remembered = null
    }
    const starting = jobs.start()
    const started = await unlessAborted(starting, signal).catch((error: unknown) => {
      if (signal.aborted) around.background(starting.then((late) => (late.outcome === 'started' ? jobs.cancel(late.id) : null)))
      throw error
    })
    if (started.outcome === 'failed') return started
    await job.remember(started.id).catch((cause: unknown) => {
      around.background(jobs.cancel(started.id))
      throw cause
    })
    remembered = started.id
    const followed = await follow(jobs, remembered, started.status, run, around)
    return followed.outcome === 'unknown' ? followed.failure : followed
  } catch (cause) {
    if (signal.aborted && remembered !== null && endsTheTask(signal.reason)) around.background(jobs.cancel(remembered))
    throw cause
  }
}

/**
 * Whether the job will not be resumed: the task was canceled, or the run took too long. After a lost lease, or when the process stops, the
 * next run resumes it.
 */
function endsTheTask(reason: unknown): boolean {
  return (reason as { name?: unknown } | null)?.name === 'TimeoutError' || (reason as { why?: unknown } | null)?.why === 'canceled'
}

type Followed<T> = Extract<JobStatus<T>, { outcome: 'ended' | 'unknown' }> | NotMade

/** Polls until the job ends. The pauses grow, are spread by chance over their upper half, and are at least as long as `Retry-After`. */
async function follow<T>(
  jobs: Jobs<T>,
  id: string,
  first: JobStatus<T> | null,
  { signal, progress, job }: Run,
  { clock, pause, random, background }: Around,
): Promise<Followed<T>> {
  let status = first ?? (await jobs.poll(id))
  let waitMs = PAUSE_MS.first
  let answeredAt = clock()
  for (;;) {
    signal.throwIfAborted()
    if (status.outcome === 'ended') job.hasEnded = true
    if (status.outcome === 'ended' || status.outcome === 'failed' || status.outcome === 'unknown') return status
    if (status.outcome === 'running') {
      answeredAt = clock()
      if (status.percent !== null) progress(status.percent)
    } else if (clock() - answeredAt > UNANSWERED_MS) {
      // It would be paid for besides the one of the next attempt.
      background(jobs.cancel(id))
      const { retryAfterMs: _patienceIsOver, ...failure } = status.failure
      return failure
    }
    const retryMs = status.outcome === 'unanswered' ? Math.min(status.failure.retryAfterMs ?? 0, PAUSE_MS.retryAfter) : 0
    await pause(Math.round(Math.max(retryMs, waitMs / 2 + (waitMs / 2) * random())), signal)
    signal.throwIfAborted()
    waitMs = Math.min(status.outcome === 'unanswered' ? PAUSE_MS.unanswered : PAUSE_MS.longest, waitMs * PAUSE_MS.factor)
    status = await jobs.poll(id)
  }
}
