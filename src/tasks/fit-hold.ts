/** What is held for a running task, once its sources are read: it is extended, before the engine runs, where they are more than they said at the creation. */
import { refusal } from '../domain/api-keys.ts'
import type { Offer } from '../backends/engines/engine.ts'
import { operationRequest, resultLimits, type Operation, type OperationInput, type Sourced } from '../domain/media-operations.ts'
import { costOf } from '../domain/media-generations.ts'
import type { MediaInfo } from '../domain/media-info.ts'
import type { Task } from '../domain/task.ts'
import { failed, type Failed } from './fetch-inputs.ts'
import { mediaElsewhere } from './source-urls.ts'
import type { TaskContext } from './task-context.ts'

type HoldContext = Pick<TaskContext, 'store' | 'clock' | 'moved' | 'linkedFile'>

/** The task with what is held for it then, or a picture's fault: its result would cost more. What is held bounds the length of any other result. Throws `Unavailable`. */
export async function fitHold(
  context: HoldContext,
  task: Task,
  media: readonly MediaInfo[],
  { route, quote }: Pick<Offer, 'route' | 'quote'>,
): Promise<{ outcome: 'held'; task: Task } | Failed> {
  const isElsewhere = mediaElsewhere(context, task.input as Sourced).some((url) => url !== null)
  // What the headers of others cost was held.
  if (task.object === 'generation' || !isElsewhere) return { outcome: 'held', task }
  const request = operationRequest(task.kind as Operation, task.input as OperationInput, '')
  const limits = resultLimits(request, media, route.max)
  const amounts = quote(request, limits)
  const cost = costOf(task.price, amounts)
  const held = await extendHold(context, task, cost)
  const { price, estimatedCost } = held
  if (price.per !== 'Megapixel' || cost <= estimatedCost) return { outcome: 'held', task: held }
  const most = Math.floor((estimatedCost / price.micro) * 1e6)
  return failed(
    'result_too_large',
    { source: '/media_url', limit: { megapixels: most / 1e6 } },
    `up to ${amounts.Megapixel / 1000} megapixels`,
  )
}

/**
 * The task with `amount` micro-units held for it, or as it is where that is not more, or more than its quote, the plan or the key allow, or these are not active: then what is held goes on to bound
 * the result. The hold is raised before the task, so that it always covers it; either may be repeated by a later run. Throws `Unavailable`.
 */
export async function extendHold(
  { store, clock, moved }: Pick<TaskContext, 'store' | 'clock' | 'moved'>,
  task: Task,
  amount: number,
): Promise<Task> {
  const wanted = Math.min(amount, task.extendableTo ?? 0)
  if (wanted <= task.estimatedCost) return task
  const keys = await store.keyVersions(task.keyId)
  const now = clock()
  // A session of the dashboard has no key; a key that was deleted keeps its versions.
  if (keys.length > 0 && !keys.some((key) => refusal(key, now) === null)) return task
  const command = { op: 'extendHold', task: task.id, epoch: task.epoch, amount: wanted, keyCap: keys[0]?.cap ?? null } as const
  const answer = await store.change(task.subscription, command, now)
  if (answer.outcome !== 'extended') return task
  moved('hold', task.tenant, answer.added)
  // Refused: another run has the task, or it has ended.
  return (await store.moveTask(task.id, { from: ['processing'], epoch: task.epoch }, 'processing', { estimatedCost: wanted })) ?? task
}
