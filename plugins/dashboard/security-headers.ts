/** Headers of every answer under `/dashboard`; and of the mode `local`, the check of the Host header against DNS rebinding. */
import type { FastifyInstance } from 'fastify'
import type { DashboardMode } from '../../src/config/dashboard-mode.ts'
import { isOwnHost } from '../../src/config/own-address.ts'
import { Failure } from '../../src/domain/errors.ts'

/** Results are shown from `/files/` of the public address, which may be another origin than the page's. */
function policy(publicUrl: string): string {
  const files = `'self' ${publicUrl}/files/`
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    `img-src ${files} blob: data:`,
    `media-src ${files} blob:`,
    `connect-src ${files}`,
    "font-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ].join('; ')
}

/** Adds the hook to a scope. */
export function securityHeaders(app: FastifyInstance, mode: DashboardMode): void {
  app.addHook('onRequest', async (request, reply) => {
    reply.headers({
      'content-security-policy': policy(app.publicUrl()),
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
    })
    if (mode === 'local' && !isOwnHost(request.headers.host, app.config)) throw new Failure('origin_not_allowed')
  })
}
