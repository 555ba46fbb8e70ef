/**
 * Fake model upstream with minimal cost, a separate process: `POST …/chat/completions` as JSON or as events, from prepared bytes. A prompt that contains
 * `IDLE` gets one event, and then silence until the client disconnects; one that contains `PACED` gets its events a few milliseconds apart.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { IDLE, PACED } from './requests.ts'

const EVENTS = 100
const PACED_EVENTS = 20
const PACE_MS = 5
const NAME = 'bench-model'
const usage = { prompt_tokens: 500, completion_tokens: EVENTS, total_tokens: 500 + EVENTS }
const event = (content: object): Buffer => Buffer.from(`data: ${JSON.stringify({ id: 'chatcmpl-bench', object: 'chat.completion.chunk', created: 1_700_000_000, model: NAME, ...content })}\n\n`)
const delta = (part: object, finish: string | null = null): Buffer => event({ choices: [{ index: 0, delta: part, logprobs: null, finish_reason: finish }] })

const ANSWER = Buffer.from(
  JSON.stringify({
    id: 'chatcmpl-bench',
    object: 'chat.completion',
    created: 1_700_000_000,
    model: NAME,
    choices: [{ index: 0, message: { role: 'assistant', content: 'The answer is forty-two. '.repeat(40) }, logprobs: null, finish_reason: 'stop' }],
    usage,
  }),
)
const START = delta({ role: 'assistant', content: '' })
const TOKENS = Array.from({ length: EVENTS }, (_, n) => delta({ content: ` word${n}` }))
const STOP = delta({}, 'stop')
const USAGE = event({ choices: [], usage })
const DONE = Buffer.from('data: [DONE]\n\n')

/** Writes one event per iteration of the event loop, or per `paceMs`, so that they travel as separate writes, like those of a model. */
function writeEvents(events: Buffer[], response: ServerResponse, paceMs: number, at = 0): void {
  const next = events[at]
  if (!next) return void response.end()
  response.write(next)
  if (paceMs > 0) setTimeout(writeEvents, paceMs, events, response, paceMs, at + 1)
  else setImmediate(writeEvents, events, response, paceMs, at + 1)
}

function answer(body: string, response: ServerResponse): void {
  if (!body.includes('"stream":true')) {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': ANSWER.length }).end(ANSWER)
    return
  }
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
  if (body.includes(IDLE)) return void response.write(START)
  const paced = body.includes(PACED)
  const end = [STOP, ...(body.includes('"include_usage":true') ? [USAGE] : []), DONE]
  writeEvents([START, ...(paced ? TOKENS.slice(0, PACED_EVENTS) : TOKENS), ...end], response, paced ? PACE_MS : 0)
}

const server = createServer((request: IncomingMessage, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => (request.method === 'POST' ? answer(Buffer.concat(chunks).toString('latin1'), response) : response.end('ok')))
})
server.keepAliveTimeout = 120_000
server.listen(Number(process.env['PORT']), '127.0.0.1')
process.once('SIGTERM', () => {
  server.close()
  server.closeAllConnections()
})
