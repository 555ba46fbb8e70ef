/** Receiver of a soak's webhooks: one of twenty is refused the first time, one of forty is answered late. It also serves a source of operations. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { blankCanvas } from '../../src/backends/engines/painter/canvas.ts'
import { png } from '../../src/backends/engines/preview/png-encoder.ts'

export type SoakReceiver = {
  url: string
  pictureUrl: string
  /** Resolves when a webhook of this task was accepted, and rejects after `ms`. Ask within ten minutes. */
  arrived(task: string, ms: number): Promise<void>
  close(): Promise<void>
}

const REFUSED_OF = 20
const LATE_OF = 40
const LATE_MS = 2_000
/** Accepted tasks that are remembered. */
const MOST_REMEMBERED = 1_000

export async function openSoakReceiver(): Promise<SoakReceiver> {
  const picture = png(blankCanvas(96, 64))
  const accepted = new Set<string>()
  const waiting = new Map<string, () => void>()
  let count = 0
  function accept(task: string): void {
    accepted.add(task)
    for (const oldest of accepted.size > MOST_REMEMBERED ? accepted.values().take(1) : []) accepted.delete(oldest)
    waiting.get(task)?.()
  }
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    if (request.method === 'GET') return void response.writeHead(200, { 'content-type': 'image/png', 'content-length': picture.length }).end(picture)
    if (++count % REFUSED_OF === 0) return void response.writeHead(503).end('later')
    const { data } = JSON.parse(Buffer.concat(chunks).toString()) as { data: { task_id: string } }
    const answer = (): void => {
      response.writeHead(204).end()
      accept(data.task_id)
    }
    if (count % LATE_OF === 1) setTimeout(answer, LATE_MS)
    else answer()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    url: `${url}/hook`,
    pictureUrl: `${url}/picture.png`,
    arrived(task, ms) {
      if (accepted.has(task)) return Promise.resolve()
      return new Promise((resolve, reject) => {
        const late = setTimeout(() => {
          waiting.delete(task)
          reject(new Error(`no webhook of task ${task} in ${ms / 1000} s`))
        }, ms)
        waiting.set(task, () => {
          clearTimeout(late)
          waiting.delete(task)
          resolve()
        })
      })
    },
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
