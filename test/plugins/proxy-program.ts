/** The whole program with a PROXY_ROUTES file, listening on port 0, and the usage of the demo tenant. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import type { Test } from 'tap'
import { eventually } from '../flows/eventually.ts'
import { openEmbeddedProgram } from './embedded-program.ts'

export type ProxyProgram = {
  app: FastifyInstance
  file: string
  port: number
  media: string
  coding: string
  call(path: string, init?: RequestInit & { duplex?: 'half' }, key?: string): Promise<Response>
  /** Tokens of the session, once no request is in flight. */
  usedTokens(): Promise<number>
  /** What the media account burned, once nothing is held. */
  burned(): Promise<string>
  declare(routes: object[]): Promise<void>
}

/** Routes in the form of the file; a string is its whole text. */
export async function openProxyProgram(t: Test, routes: object[] | string, env: Record<string, string> = {}, logged: string[] = []): Promise<ProxyProgram> {
  const file = join(t.testdir({}), 'routes.yaml')
  await writeFile(file, typeof routes === 'string' ? routes : JSON.stringify({ routes }))
  const { app, key } = await openEmbeddedProgram(t, { env: { PROXY_ROUTES: file, ...env }, logged })
  await app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = app.server.address() as AddressInfo
  const [media, coding] = await Promise.all([key('demo-media-key'), key('demo-coding-key')])
  const call: ProxyProgram['call'] = (path, init = {}, key = coding) =>
    fetch(`http://127.0.0.1:${port}${path}`, { redirect: 'manual', ...init, headers: { authorization: `Bearer ${key}`, ...(init.headers as Record<string, string>) } })
  return {
    app, file, port, media, coding, call,
    declare: (next) => writeFile(file, JSON.stringify({ routes: next })),
    usedTokens: () =>
      eventually('the settlement', async () => {
        const { session } = (await (await call('/v1/usage')).json()) as { session: { used: number; reserved: number } }
        return session.reserved === 0 ? session.used : null
      }),
    burned: () =>
      eventually('the capture', async () => {
        const { held, burned } = (await (await call('/api/v1/usage', {}, media)).json()) as { held: string; burned: string }
        return held === '0.0000' ? burned : null
      }),
  }
}
