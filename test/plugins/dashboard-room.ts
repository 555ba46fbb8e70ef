/** Test fixture: a studio whose Media API is registered a second time behind sessions of the dashboard. */
import type { FastifyInstance, LightMyRequestResponse } from 'fastify'
import type { Test } from 'tap'
import { roomRoutes, type RoomOptions } from '../../plugins/dashboard/ai-room-routes.ts'
import media from '../../plugins/media/media.ts'
import requestBody from '../../plugins/request-body/request-body.ts'
import taskWatch from '../../plugins/task-watch/task-watch.ts'
import type { Session } from '../../src/domain/sessions.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import { openStudio, type Studio, type StudioOptions } from './studio.ts'

export type Sent = { method?: 'GET' | 'POST'; path: string; body?: object | Buffer; headers?: Record<string, string>; tenant?: string; session?: string }

export type Room = Studio & { send(request: Sent): Promise<LightMyRequestResponse> }

/** A studio whose routes are registered a second time behind sessions; the header x-session chooses one, of tenant acme unless it says otherwise. */
export async function openRoom(t: Test, options: StudioOptions = {}, room: Partial<RoomOptions> = {}): Promise<Room> {
  const mediaRoutes = async (scope: FastifyInstance) => {
    await scope.register(requestBody)
    await scope.register(media, { keyless: true })
  }
  const studio = await openStudio(t, {
    ...options,
    outside: async (root) => {
      await root.register(taskWatch)
      root.decorateRequest('session', null)
      await root.register(
        async (api) => {
          api.addHook('onRequest', async (request) => {
            const id = String(request.headers['x-session'])
            const tenant = String(request.headers['x-tenant'])
            request.session = { session: { id, tenant } as Session, tenant }
          })
          await roomRoutes(api, { mediaRoutes, explains: false, ...room })
        },
        { prefix: '/dashboard/api' },
      )
    },
  })
  return {
    ...studio,
    send: ({ method = 'GET', path, body, headers = {}, tenant = 'acme', session = 'one' }) =>
      studio.app.inject({ method, url: `/dashboard/api${path}`, headers: { 'x-session': session, 'x-tenant': tenant, ...headers }, ...(body ? { payload: body } : {}) }),
  }
}

/** Gives another tenant a plan. */
export async function applyPlan({ store, time }: Room, id: string, product: 'Media' | 'Coding', terms: Subscription['terms']): Promise<void> {
  await store.change(id, { op: 'applyPlan', plan: { uid: id, createdAt: 0, generation: 1 }, product, terms, state: 'Active', activeFrom: null, activeUntil: null, verdict: null }, time.now)
}
