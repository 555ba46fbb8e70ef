/** What the AI Room of the dashboard uses, in the scope `/dashboard/api` behind a session: the Media API's endpoints under `/media`. */
import type { FastifyInstance } from 'fastify'
import mediaCaller from './media-caller.ts'
import mediaKinds from './media-kinds.ts'
import { resultRoutes } from './result-routes.ts'
import { taskListRoutes } from './task-list.ts'
import { refuseOtherTenants } from './shown-tenant.ts'

export type RoomOptions = {
  /** Registers the routes of the Media API for `request.caller`, the same as behind a key, and what parses their bodies. */
  mediaRoutes: (scope: FastifyInstance) => Promise<void>
  /** Whether people may read what is missing on the machine: they run it themselves. */
  explains: boolean
}

/** Registers the routes. A request for another tenant than that of the session is refused. */
export async function roomRoutes(api: FastifyInstance, { mediaRoutes, explains }: RoomOptions): Promise<void> {
  // The Media API lets clients keep a record; a browser keeps nothing of a session but the thumbnails.
  api.addHook('onSend', async (_request, reply) => void reply.header('cache-control', 'no-store'))
  refuseOtherTenants(api)
  await api.register(
    async (scope) => {
      await scope.register(mediaCaller)
      await scope.register(mediaKinds, { explains })
      resultRoutes(scope)
      taskListRoutes(scope)
      await mediaRoutes(scope)
    },
    { prefix: '/media' },
  )
}
