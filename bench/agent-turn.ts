/** Processor time of reading and rewriting one turn of an agent, without HTTP: 61 messages with 30 tool calls and their results, 12 tools. `node bench/agent-turn.ts` */
import { readChatRequest } from '../src/upstream/wires/chat/chat-request.ts'
import { openIds } from '../src/upstream/wires/encrypted-ids.ts'
import { agentBody } from './requests.ts'

const TURNS = 300
const ROUNDS = 9

const ids = openIds([Buffer.alloc(48, 1)])
const target = { model: 'm', maxTokensField: null, policy: { allow: new Set<string>(), drop: new Set<string>(), force: {} } }

const known = ids('acme/first')
const body = JSON.stringify(agentBody('', (n) => known.encrypt('call_', `functions.read:${n}`)))

/** Microseconds of processor time per turn. */
function round(): number {
  const before = process.cpuUsage()
  for (let n = 0; n < TURNS; n++) readChatRequest(JSON.parse(body), new Set()).call(4096, ids('acme/first'), () => 1, ['chat']).body(target)
  const { user, system } = process.cpuUsage(before)
  return (user + system) / TURNS
}

round()
const rounds = Array.from({ length: ROUNDS }, round).sort((a, b) => a - b)
console.log(`${rounds[Math.floor(ROUNDS / 2)]?.toFixed(0)} µs per turn, ${rounds[0]?.toFixed(0)} to ${rounds.at(-1)?.toFixed(0)} by round`)
