/** Messages as CloudEvents 1.0 in structured JSON. What was received is validated by the schema of its type; anything else is no message. */
import { randomUUID } from 'node:crypto'
import { Ajv } from 'ajv'
import type { Message, TaskReady, WebhookDue } from '../../../domain/broker-messages.ts'
import taskReady from './schemas/task-ready.v1.json' with { type: 'json' }
import webhookDue from './schemas/webhook-due.v1.json' with { type: 'json' }

export const CONTENT_TYPE = 'application/cloudevents+json; charset=utf-8'

/** Far above any message of ours. */
const MAX_BYTES = 4096
const SOURCE = '/tollgate'

type Data = {
  'task.ready': Omit<TaskReady, 'type' | 'kind' | 'key' | 'readyAt'> & { verb: string; readyAt: string }
  'webhook.due': Pick<WebhookDue, 'tenant' | 'task'>
}
type Event<T extends Message['type']> = { id: string; time: string; partitionkey: string; traceparent?: string; data: Data[T] }

const ajv = new Ajv({ strict: false })
const isTaskReady = ajv.compile<Event<'task.ready'>>(taskReady)
const isWebhookDue = ajv.compile<Event<'webhook.due'>>(webhookDue)

/** `now` is the time of publication, epoch milliseconds. */
export function encodeEvent(message: Message, now: number): string {
  const { key, traceparent } = message
  const { id, subject, data, schema } = message.type === 'task.ready' ? taskEvent(message) : webhookEvent(message)
  return JSON.stringify({
    specversion: '1.0',
    id,
    type: `dev.tollgate.${message.type}.v1`,
    source: SOURCE,
    subject,
    time: new Date(now).toISOString(),
    datacontenttype: 'application/json',
    dataschema: schema.$id,
    partitionkey: key,
    ...(traceparent === undefined ? {} : { traceparent }),
    data,
  })
}

function taskEvent({ task, attempt, tenant, subscription, object, kind: verb, readyAt }: TaskReady) {
  const data: Data['task.ready'] = { tenant, subscription, task, object, verb, attempt, readyAt: new Date(readyAt).toISOString() }
  return { id: `${task}/${attempt}`, subject: task, data, schema: taskReady }
}

function webhookEvent({ task, tenant }: WebhookDue) {
  const data: Data['webhook.due'] = { tenant, task }
  return { id: randomUUID(), subject: task ?? tenant, data, schema: webhookDue }
}

/** The message of a record in the topic of `kind`; null when it is not a valid one of that kind, as those of other versions and publishers. */
export function decodeEvent(kind: string, value: Buffer | null): Message | null {
  if (value === null || value.length > MAX_BYTES) return null
  const event = parse(value.toString())
  if (kind === 'webhook') {
    if (!isWebhookDue(event)) return null
    const { data, partitionkey: key, traceparent } = event
    return { type: 'webhook.due', kind, tenant: data.tenant, task: data.task, key, ...(traceparent === undefined ? {} : { traceparent }) }
  }
  if (!isTaskReady(event) || event.data.verb !== kind || !event.data.subscription.startsWith(`${event.data.tenant}/`)) return null
  const { data, partitionkey: key, traceparent } = event
  const { tenant, subscription, task, object, attempt, readyAt } = data
  return {
    type: 'task.ready',
    kind,
    object,
    tenant,
    subscription,
    task,
    attempt,
    readyAt: Date.parse(readyAt),
    key,
    ...(traceparent === undefined ? {} : { traceparent }),
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
