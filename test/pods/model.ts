/** A model server on the machine, reachable from pods: real HTTP, and streams that stay open until `finish`. */
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { chunk, completion, delta, DONE, USAGE } from '../fakes/upstream-wire.ts'

/** A user message with this text is answered by a stream that ends at `finish`. Any other is answered within a second. */
export const LASTING = 'Take your time.'

export type Model = {
  /** Base URL. */
  url: string
  /** Number of open streams. */
  open(): number
  finish(): void
  close(): Promise<void>
}

export async function openModel(address: string): Promise<Model> {
  const lasting = new Set<ServerResponse>()
  const server = createServer(async (request, response) => {
    const { stream, messages } = JSON.parse((await request.toArray()).join(''))
    if (request.headers.authorization !== 'Bearer model-key') return void response.writeHead(401).end('{}')
    if (!stream) return void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(completion('Hello')))
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    if (messages[0].content === LASTING) {
      lasting.add(response.on('close', () => lasting.delete(response)))
      return void response.write(chunk([delta({ role: 'assistant', content: 'Well' })]))
    }
    for (const content of 'One two three four five six seven eight nine ten'.split(' ')) {
      response.write(chunk([delta({ content })]))
      await pause(50)
    }
    end(response)
  })
  server.listen(0, address)
  await once(server, 'listening')
  return {
    url: `http://${address}:${(server.address() as AddressInfo).port}/v1`,
    open: () => lasting.size,
    finish: () => lasting.forEach(end),
    async close() {
      server.close()
      server.closeAllConnections()
    },
  }
}

function end(response: ServerResponse): void {
  response.write(chunk([delta({}, 'stop')]))
  response.end(`${chunk([], { usage: USAGE })}${DONE}`)
}
