/** Kubernetes Events on transitions of `Ready`, for `kubectl describe`. Best effort: a few at a time, and not more than people read. */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { API_VERSION, type ApiKeyStatus, type Condition, type Kind, type PlanStatus } from '../resources.ts'
import type { Client } from './client.ts'
import type { KubeObject } from './objects.ts'

export type Events = {
  /** Tells a transition of `Ready`, if it is one, without waiting for it. */
  transition(kind: Kind, before: KubeObject, status: PlanStatus | ApiKeyStatus): void
}

const CONTROLLER = 'tollgate.dev/controller'
/** A burst, and then so many a second: ten thousand keys that are issued at once are no news each. */
const BURST = 100
const PER_SECOND = 5
const MOST_IN_FLIGHT = 4

export function openEvents(client: Client, now: () => number = Date.now): Events {
  const instance = hostname()
  let tokens = BURST
  let refilledAt = now()
  let inFlight = 0

  function isAllowed(): boolean {
    const at = now()
    tokens = Math.min(BURST, tokens + (Math.max(0, at - refilledAt) / 1000) * PER_SECOND)
    refilledAt = at
    if (tokens < 1 || inFlight >= MOST_IN_FLIGHT) return false
    tokens--
    return true
  }

  async function send(path: string, event: object): Promise<void> {
    inFlight++
    try {
      await client.request('POST', path, { body: event })
    } catch {
      // The status says the same.
    } finally {
      inFlight--
    }
  }

  return {
    transition(kind, before, status) {
      const was = readyOf(before.status as PlanStatus | undefined)
      const is = readyOf(status)
      if (!is || (was?.status === is.status && was.reason === is.reason) || !isAllowed()) return
      const { namespace, name, uid, resourceVersion } = before.metadata
      const event = {
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
      const path = `/apis/events.k8s.io/v1/namespaces/${namespace}/events`
      void send(path, event)
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
