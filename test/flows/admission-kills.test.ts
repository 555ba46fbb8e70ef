/** SIGKILL of the program while requests are at their upstream and their admissions are being stored. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { openStore } from '../../src/backends/store/store.ts'
import { promptBytes } from '../../src/upstream/usage/prompt-size.ts'
import { openUpstream, respond } from '../fakes/upstream.ts'
import { completion } from '../fakes/upstream-wire.ts'
import { folderFor } from '../temporary-folder.ts'
import { answer, post, used } from './calls.ts'
import { apiKey, codingPlan, declare } from './manifests.ts'
import { NAMESPACE, start } from './program.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'

const KILLS = 2
const CLIENTS = 8
/** Answers of a life of the program; whoever gets the last one kills it. */
const ANSWERS = 60

/** Request n has a prompt of n bytes more than an empty one, and uses n tokens: so its reservation can be told, and its charge. */
const bodyOf = (n: number) => ({ model: 'svc-code', max_tokens: 1000, messages: [{ role: 'user', content: 'x'.repeat(n) }] })
const EMPTY_BYTES = promptBytes('chat', bodyOf(0), new Set())
const sum = (numbers: number[]) => numbers.reduce((total, one) => total + one, 0)

t.setTimeout(SIDE_TIMEOUT_MS)
t.test('every request that was answered is charged or still reserved, whenever the process is killed', { timeout: SIDE_TIMEOUT_MS }, async (t) => {
  const folder = await folderFor(t)
  const windows = { sessionWindow: { tokens: 1_000_000, durationSeconds: 18_000 }, weeklyWindow: { tokens: 1_000_000 }, maxConcurrentRequests: 1000 }
  await declare(folder, 'plans', codingPlan('plan', { requestsPerMinute: 1_000_000 }, windows), apiKey('key', 'plan'))
  const upstream = await openUpstream((response, { body }) => {
    const [{ content }] = body['messages'] as [{ content: string }]
    respond(response, 200, completion('Hello', { usage: { prompt_tokens: 0, completion_tokens: content.length } }))
  })
  t.teardown(() => upstream.close())
  await writeFile(join(folder, 'upstreams.yaml'), `upstreams: [{ name: fake, baseUrl: "${upstream.url}", model: fake-1, apiKey: none, wire: chat }]\n`)
  const open = () => start({ folder, env: { UPSTREAMS: join(folder, 'upstreams.yaml') } })

  /** What the killed process left in its store. */
  async function left(): Promise<{ charged: number; reservations: { n: number; tokens: number }[] }> {
    const store = await openStore(`sqlite:${join(folder, 'data/tollgate.db')}`)
    const coding = (await store.subscription(`${NAMESPACE}/plan`))?.coding
    await store.close()
    return { charged: coding?.weekly.used ?? 0, reservations: Object.values(coding?.reservations ?? {}).map(({ bytes, tokens }) => ({ n: bytes - EMPTY_BYTES, tokens })) }
  }

  let program = await open()
  t.teardown(() => program.kill())
  const key = await program.key('key')
  let n = 0
  let chargedBefore = 0
  for (let kill = 1; kill <= KILLS; kill++) {
    const answered: number[] = []
    const unanswered: number[] = []
    const client = async (): Promise<void> => {
      for (;;) {
        const mine = ++n
        const got = await post(program, key, '/v1/chat/completions', bodyOf(mine)).then(answer).catch(() => null)
        if (got?.status !== 200) return void unanswered.push(mine)
        // The other requests are on their way to the upstream, to a commit, to an answer or to the settlement.
        if (answered.push(mine) === ANSWERS) void program.kill()
      }
    }
    await Promise.all(Array.from({ length: CLIENTS }, client))
    await program.kill()
    const { charged, reservations } = await left()
    const reserved = new Set(reservations.map((one) => one.n))
    const least = sum(answered.filter((one) => !reserved.has(one)))
    const seen = `kill ${kill}: ${charged - chargedBefore} tokens charged, at least ${least}, after ${answered.length} answers and ${unanswered.length} requests without one, with ${reserved.size} reservations`
    // A request that was settled may have lost its answer on the way.
    t.ok(charged - chargedBefore >= least && charged - chargedBefore <= least + sum(unanswered), seen)
    t.ok(answered.length >= ANSWERS, seen)
    program = await open()
    chargedBefore = charged + sum(reservations.map(({ tokens }) => tokens))
    t.equal((await used(program, key)).weekly, chargedBefore, 'what was reserved is charged as it is')
  }
})
