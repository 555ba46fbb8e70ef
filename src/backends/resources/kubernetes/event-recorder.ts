/** Event recorder: Kubernetes Events on transitions of `Ready`, for `kubectl describe`. Best effort and rate-limited. */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import type { EventsV1Event } from '@kubernetes/client-node'
import { API_VERSION, type ApiKeyStatus, type Condition, type Kind, type PlanStatus } from '../resources.ts'
import { failure, isNamespaceTerminating, type Client } from './api-client.ts'
import { openConcurrencyLimit } from './concurrency-limit.ts'
import type { KubeObject, Wire } from './api-objects.ts'

export type Events = {
  /** Records an Event if `Ready` changes, without waiting for the request. */
  transition(kind: Kind, before: KubeObject, status: PlanStatus | ApiKeyStatus): void
}

const CONTROLLER = 'tollgate.dev/controller'
/** Token bucket: thousands of keys issued at once need no Event each. */
const BURST = 100
const PER_SECOND = 5
const MAX_IN_FLIGHT = 4

export function openEvents(client: Client, log: { warn(o: object, m: string): void }, now: () => number = Date.now): Events {
  const instance = hostname()
  const limit = openConcurrencyLimit(MAX_IN_FLIGHT)
  /** Namespaces where the permission to write Events is missing, which is logged once for each. */
  const forbidden = new Set<string>()
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
      const response = await client.request<object>('POST', path, { body: event })
      if (response.status === 201) forbidden.delete(namespace)
      if (response.status !== 403 || isNamespaceTerminating(response) || forbidden.has(namespace)) return
      forbidden.add(namespace)
      log.warn(
        { event: 'kubernetes_events_forbidden', namespace, err: failure('POST', path, response) },
        'Kubernetes Events cannot be written',
      )
    } catch {
      // The status has the same information.
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
      void limit(() => send(namespace, event))
    },
  }
}

function readyOf(status: { conditions?: Condition[] } | undefined): Condition | undefined {
  return status?.conditions?.find(({ type }) => type === 'Ready')
}

/** `metav1.MicroTime`, for which the API server requires six fractional digits. */
export function microTime(at: number): string {
  return new Date(at).toISOString().replace('Z', '000Z')
}
