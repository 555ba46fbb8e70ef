/** Kubernetes Events on transitions of `Ready`, for `kubectl describe`. Best effort: a few at a time, and not more than people read. */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import type { EventsV1Event } from '@kubernetes/client-node'
import { API_VERSION, type ApiKeyStatus, type Condition, type Kind, type PlanStatus } from '../resources.ts'
import { failure, isNamespaceGoing, type Client } from './api-client.ts'
import { openConcurrencyLimit } from './concurrency-limit.ts'
import type { KubeObject, Wire } from './api-objects.ts'

export type Events = {
  /** Tells a transition of `Ready`, if it is one, without waiting for it. */
  transition(kind: Kind, before: KubeObject, status: PlanStatus | ApiKeyStatus): void
}

const CONTROLLER = 'tollgate.dev/controller'
/** A burst, and then so many a second: ten thousand keys that are issued at once are no news each. */
const BURST = 100
const PER_SECOND = 5
const MOST_IN_FLIGHT = 4

export function openEvents(client: Client, log: { warn(o: object, m: string): void }, now: () => number = Date.now): Events {
  const instance = hostname()
  const gate = openConcurrencyLimit(MOST_IN_FLIGHT)
  /** Namespaces in which we lack the right to write them: said once for each, since nothing else would tell why there are none. */
  const refused = new Set<string>()
  let tokens = BURST
  let refilledAt = now()

  function isAllowed(): boolean {
    const at = now()
    tokens = Math.min(BURST, tokens + (Math.max(0, at - refilledAt) / 1000) * PER_SECOND)
    refilledAt = at
    if (tokens < 1) return false
    tokens--
    return true
  }

  async function send(namespace: string, event: Wire<EventsV1Event>): Promise<void> {
    const path = `/apis/events.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/events`
    try {
      const answer = await client.request<object>('POST', path, { body: event })
      if (answer.status === 201) refused.delete(namespace)
      if (answer.status !== 403 || isNamespaceGoing(answer) || refused.has(namespace)) return
      refused.add(namespace)
      log.warn({ err: failure('POST', path, answer) }, 'Events cannot be written')
    } catch {
      // The status says the same.
    }
  }

  return {
    transition(kind, before, status) {
      const was = readyOf(before.status as PlanStatus | undefined)
      const is = readyOf(status)
      if (!is || (was?.status === is.status && was.reason === is.reason) || !isAllowed()) return
      const { namespace, name, uid, resourceVersion } = before.metadata
      const event: Wire<EventsV1Event> = {
        apiVersion: 'events.k8s.io/v1',
        kind: 'Event',
        metadata: { name: `${name}.${randomUUID()}`, namespace },
        eventTime: microTime(now()),
        reportingController: CONTROLLER,
        reportingInstance: instance,
        action: 'Reconcile',
        reason: is.reason,
        note: is.message,
        type: is.status === 'True' ? 'Normal' : 'Warning',
        regarding: { apiVersion: API_VERSION, kind, namespace, name, uid, resourceVersion },
      }
      void gate(() => send(namespace, event))
    },
  }
}

function readyOf(status: { conditions?: Condition[] } | undefined): Condition | undefined {
  return status?.conditions?.find(({ type }) => type === 'Ready')
}

/** `metav1.MicroTime`: six digits after the point, which the API server insists on. */
export function microTime(at: number): string {
  return new Date(at).toISOString().replace('Z', '000Z')
}
