import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type SlowUpstream = { url: string; totalTokens: number; finish(): void; close(): Promise<void> }

/** A model upstream of the chat wire that streams one word and then stays silent until `finish` ends every stream, with its usage. */
export async function openUpstream(): Promise<SlowUpstream> {
  const streams: ServerResponse[] = []
  const usage = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 }
  const chunk = (more: object) => `data: ${JSON.stringify({ id: 'slow', object: 'chat.completion.chunk', created: 1, model: 'slow-1', ...more })}\n\n`
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(chunk({ choices: [{ index: 0, delta: { role: 'assistant', content: 'Hello' }, finish_reason: null }] }))
      streams.push(response)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    totalTokens: usage.total_tokens,
    finish() {
      for (const stream of streams) {
        stream.write(chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }))
        stream.write(chunk({ choices: [], usage }))
        stream.end('data: [DONE]\n\n')
      }
    },
    close: () => new Promise((resolve) => {
      server.close(() => resolve())
      server.closeAllConnections()
    }),
  }
}
