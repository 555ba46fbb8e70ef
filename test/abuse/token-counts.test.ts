/** The work of counting tokens: characters, turns of the event loop, and the blocks of the tokenizer that run, counted by V8; never the time. */
import { Session } from 'node:inspector/promises'
import t from 'tap'
import { openPromptCounts } from '../../src/upstream/usage/prompt-tokens.ts'
import { countTokens } from '../../src/upstream/usage/tokenizer.ts'

const session = new Session()
session.connect()
await countTokens('The tokenizer is loaded.')
await session.post('Profiler.enable')
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
t.teardown(() => session.disconnect())

/** How often blocks of the tokenizer run meanwhile, and the turns of the event loop that pass. */
async function workOf(count: () => Promise<unknown>): Promise<{ blocks: number; turns: number }> {
  await session.post('Profiler.takePreciseCoverage')
  let turns = 0
  let next = setImmediate(function turn() { turns++; next = setImmediate(turn) })
  await count()
  clearImmediate(next)
  const { result } = await session.post('Profiler.takePreciseCoverage')
  const theirs = result.filter(({ url }) => url.includes('/gpt-tokenizer/'))
  return { blocks: theirs.flatMap(({ functions }) => functions).flatMap(({ ranges }) => ranges).reduce((sum, { count: runs }) => sum + runs, 0), turns }
}

/** Texts on which a tokenizer takes quadratic time: they have no boundaries of words. */
const TEXTS: Record<string, string> = {
  spaces: ' ',
  newlines: '\n',
  'white space of all kinds': ' \n\t\r\u00a0',
  letters: 'qjzxvkwpbm',
  words: `${'qjzxvkwpbm'.repeat(199)} `,
  Chinese: '龘靐齉齾爩',
  Thai: 'ขฃคฅฆงจฉช',
  emoji: '😀🙈🚀',
  'combining marks': 'a\u0301\u0302\u0303',
  base64: 'aGVsbG8gd29ybGQ1',
  punctuation: '!@#$%^&*-=',
}

t.test('counting a text takes bounded work, in small stretches, whatever the text', async (t) => {
  for (const [name, part] of Object.entries(TEXTS)) {
    const text = (length: number) => part.repeat(Math.ceil(length / part.length)).slice(0, length)
    const stretch = await workOf(() => countTokens(text(512)))
    const long = await workOf(() => countTokens(text(100_000)))
    t.ok(stretch.blocks < 3_000_000, `${name}: ${stretch.blocks} in a stretch`)
    t.ok(long.blocks <= 33 * 1.5 * stretch.blocks, `${name}: ${long.blocks} in all`)
    t.ok(long.turns >= 31, `${name}: ${long.turns} turns`)
  }
})

t.test('a count of a long text is close to the tokens of all of it', async (t) => {
  const lines = (word: string) => Array.from({ length: 2_000 }, (_, n) => `${word} line ${n} of it`).join('\n')
  const whole = `${lines('prose, as people write it,')}\n${lines('const value = { name: [0x1f, true] };')}`
  let tokens = 0
  for (let at = 0; at < whole.length; at += 512) tokens += await countTokens(whole.slice(at, at + 512))
  const counted = await countTokens(whole)
  t.ok(Math.abs(counted - tokens) < tokens * 0.05, `${counted} of ${tokens}`)
  t.ok((await countTokens(' '.repeat(100_000))) > 500, 'white space has tokens')
})

t.test('nothing of a text is kept for later counts', async (t) => {
  const text = Array.from({ length: 500 }, (_, n) => String.fromCodePoint(0x4e00 + ((n * 7919) % 20_000))).join('')
  const first = await workOf(() => countTokens(text))
  const second = await workOf(() => countTokens(text))
  t.ok(first.blocks > 100_000 && second.blocks === first.blocks, `${first.blocks} and ${second.blocks}`)
})

t.test('a plan has sixteen counts at once; of others the tokens are estimated by their length', async (t) => {
  const count = openPromptCounts()
  const body = { input: 'word '.repeat(20_000) }
  const exact = await count('acme/coder', body)
  const counts = await Promise.all([...Array.from({ length: 20 }, () => count('acme/coder', body)), count('other/coder', body)])
  t.same(counts.slice(0, 16), Array(16).fill(exact))
  t.same(counts.slice(16, 20), Array(4).fill(25_000))
  t.equal(counts[20], exact, 'another plan')
  t.equal(await count('acme/coder', body), exact, 'afterwards')
})
