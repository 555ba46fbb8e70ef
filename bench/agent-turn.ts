/** Processor time of reading and rewriting one turn of an agent, without HTTP: 61 messages with 30 tool calls and their results, 12 tools. `node bench/agent-turn.ts` */
import { readChatRequest } from '../src/upstream/wires/chat-request.ts'
import { openIds } from '../src/upstream/wires/encrypted-ids.ts'

const TURNS = 300
const ROUNDS = 9

const ids = openIds([Buffer.alloc(32, 1)])
const target = { model: 'm', maxTokensField: null, policy: { allow: new Set<string>(), drop: new Set<string>(), force: {} } }

function bodyOfTurn(): string {
  const known = ids('acme/first')
  const calls = Array.from({ length: 30 }, (_, n) => known.encrypt('call_', `functions.read:${n}`))
  const messages = calls.flatMap((id) => [
    { role: 'assistant', content: null, tool_calls: [{ id, type: 'function', function: { name: 'read', arguments: '{"path":"src/main.ts"}' } }] },
    { role: 'tool', tool_call_id: id, content: 'text '.repeat(100) },
  ])
  const parameters = { type: 'object', properties: { path: { type: 'string', description: 'text '.repeat(40) } } }
  const tools = Array.from({ length: 12 }, (_, n) => ({ type: 'function', function: { name: `tool${n}`, parameters } }))
  return JSON.stringify({ model: 'svc-code', stream: true, messages: [{ role: 'system', content: 'text '.repeat(800) }, ...messages], tools })
}

const body = bodyOfTurn()

/** Microseconds of processor time per turn. */
function round(): number {
  const before = process.cpuUsage()
  for (let n = 0; n < TURNS; n++) readChatRequest(JSON.parse(body), new Set()).call(4096, ids('acme/first'), 1, ['chat']).body(target)
  const { user, system } = process.cpuUsage(before)
  return (user + system) / TURNS
}

round()
const rounds = Array.from({ length: ROUNDS }, round).sort((a, b) => a - b)
console.log(`${rounds[Math.floor(ROUNDS / 2)]?.toFixed(0)} µs per turn, ${rounds[0]?.toFixed(0)} to ${rounds.at(-1)?.toFixed(0)} by round`)
